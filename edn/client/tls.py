"""TLS of a client: the authority that it trusts, and the certificate that it presents."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Paths of PEM files; None is the default of the system, or no certificate."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @classmethod
    def choose(cls, ca: str | Path | None, cert: str | Path | None, key: str | Path | None) -> Self:
        """Returns the given files, by default those of EDN_TLS_CA, EDN_TLS_CERT and EDN_TLS_KEY."""

        def choose(given: str | Path | None, variable: str) -> str | None:
            return str(given) if given is not None else os.environ.get(variable) or None

        return cls(choose(ca, "EDN_TLS_CA"), choose(cert, "EDN_TLS_CERT"), choose(key, "EDN_TLS_KEY"))

    def context(self) -> ssl.SSLContext | bool:
        """Returns the `verify` of httpx; raises `ValueError` for files that cannot be used."""
        if self == TlsOptions():
            return True
        if (self.cert is None) != (self.key is None):
            missing = "tls_key" if self.key is None else "tls_cert"
            raise ValueError(f"{missing} is required: a certificate and its key are given together")
        for name, file in (("tls_ca", self.ca), ("tls_cert", self.cert), ("tls_key", self.key)):
            if file is not None:
                try:
                    Path(file).read_bytes()
                except OSError as error:
                    raise ValueError(f"{name} {file} cannot be read: {error.strerror}") from None
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise ValueError(f"tls_ca {self.ca} must be a certificate in PEM") from None
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password=_refuse_passphrase)
            except ssl.SSLError as error:
                if "KEY_VALUES_MISMATCH" in str(error):
                    raise ValueError(
                        f"tls_key {self.key} must be the key of {self.cert}, got another key"
                    ) from None
                raise ValueError(
                    f"tls_cert {self.cert} and tls_key {self.key} must be a certificate and its key in PEM"
                ) from None
        return context


def _refuse_passphrase() -> str:
    raise ValueError("tls_key must not be encrypted")


def explain(error: httpx.TransportError) -> str | None:
    """Returns why a TLS connection failed, in one sentence; None if that was not the reason."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = re.sub(r"^.*certificate verify failed: |\.? \(_ssl\.c:\d+\)$", "", text)
        hint = ""
        if "issuer" in reason or "self-signed" in reason or "self signed" in reason:
            hint = "; name its certificate authority with --tls-ca or EDN_TLS_CA"
        return f"its certificate is not accepted: {reason}{hint}"
    if "CERTIFICATE_REQUIRED" in text or "HANDSHAKE_FAILURE" in text or "certificate required" in text:
        return "it requires a client certificate: give --tls-cert and --tls-key"
    if "UNKNOWN_CA" in text or "BAD_CERTIFICATE" in text:
        return "it does not accept the client certificate"
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return "it does not speak TLS: write http:// in its URL"
    return None

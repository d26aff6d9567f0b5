"""A certificate authority for development, and the certificate of all processes of `edn up --tls`.

FOLDER/ca.pem, ca-key.pem            the authority; created once, so that clients that trust it go on
FOLDER/process.pem, process-key.pem  names of this machine; renewed by `edn up` when it ends within a month

The processes reload the files while they run (`edn.http.tls`). Whoever can read ca-key.pem can pretend to be
the network: production uses certificates of another authority.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_TIME = timedelta(days=3650)
#: browsers refuse certificates with a longer life
PROCESS_TIME = timedelta(days=397)
RENEW_TIME = timedelta(days=30)
#: clocks differ
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Certificates:
    ca: Path
    cert: Path
    key: Path

    @property
    def options(self) -> list[str]:
        """The options of the processes; clients without a certificate are accepted except at /internal/."""
        files = ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca)]
        return [*files, "--tls-clients", "internal"]


def prepare_certificates(folder: Path, host: str) -> Certificates:
    """Creates what is missing or ends soon; raises `OSError`, or `ValueError` for files that are not PEM."""
    folder.mkdir(mode=0o700, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "process.pem", folder / "process-key.pem")
    ca_key = folder / "ca-key.pem"
    if not made.ca.exists() or not ca_key.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edn development authority")])
        _write(ca_key, _pem(key))
        _write(made.ca, _authority(name, key).public_bytes(serialization.Encoding.PEM))
        made.cert.unlink(missing_ok=True)
    authority = x509.load_pem_x509_certificate(made.ca.read_bytes())
    if not _is_current(made, authority, _names(host)):
        signer = serialization.load_pem_private_key(ca_key.read_bytes(), None)
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{ca_key} must be a key of an elliptic curve")
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _process(authority, signer, key, _names(host))
        _write(made.key, _pem(key))
        _write(made.cert, certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _names(host: str) -> list[x509.GeneralName]:
    """Returns the names and addresses under which clients and processes may call a process."""
    texts = dict.fromkeys(["localhost", "127.0.0.1", "::1", host, socket.gethostname()])
    names: list[x509.GeneralName] = []
    for text in texts:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            names.append(x509.DNSName(text))
        else:
            if not address.is_unspecified:
                names.append(x509.IPAddress(address))
    return names


def _is_current(made: Certificates, authority: x509.Certificate, names: list[x509.GeneralName]) -> bool:
    if not made.cert.exists() or not made.key.exists():
        return False
    certificate = x509.load_pem_x509_certificate(made.cert.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        certificate.issuer == authority.subject
        and certificate.not_valid_after_utc - datetime.now(UTC) > RENEW_TIME
        and set(names) <= set(found)
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return (
        _builder(name, name, key.public_key(), CA_TIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _process(
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edn")])
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        _builder(subject, authority.subject, key.public_key(), PROCESS_TIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        .sign(signer, hashes.SHA256())
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, in one step."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
    fresh.replace(file)

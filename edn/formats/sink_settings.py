"""The settings of a sink: headers, credentials, retries, timeout, order and rate of its deliveries.

A subscription without settings uses those of its server. Settings are immutable and have an **id**, a digest
of all of them, which is part of the address on a server: subscriptions with one URL share POSTs only if their
settings are equal. The secret part, the credentials, is kept apart from the rest; everything else is shown to
subscribers as they gave it, except values of headers whose names look like secrets.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import msgspec

from edn.errors import InvalidSink

MAX_HEADERS = 32
MAX_NAME = 128
MAX_VALUE = 4096
MAX_HEADER_BYTES = 16 << 10
MAX_TOKEN = 8192
MAX_TEXT = 1024
MAX_PEM = 64 << 10

SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 0.1, 60.0
SHORTEST_STEP, LONGEST_STEP = 0.1, 86_400.0
MAX_STEPS = 50
SHORTEST_GIVE_UP, LONGEST_GIVE_UP = 1.0, 7 * 86_400.0
LARGEST_FACTOR = 100.0
SLOWEST_RATE, FASTEST_RATE = 0.001, 100_000.0

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?\Z")
_VISIBLE = re.compile(r"[\x21-\x7e]+\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

#: set by this network, or by the protocol
_RESERVED = frozenset(
    {
        "accept",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "soapaction",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_RESERVED_PREFIXES = ("webhook-", "ce-", "proxy-", ":")
#: found in the names of headers that are likely secrets; in doubt a value is hidden
_SECRET = re.compile(r"auth(?!ors?(?:-|$))|cookie|credential|key|passw|secret|session|signature|token")
#: stands for a hidden value
MASK = "***"


# -- settings -------------------------------------------------------------------------------------------


class Exponential(msgspec.Struct, frozen=True):
    """Delays that grow by a factor, in seconds."""

    first: float
    factor: float
    longest: float

    def steps(self) -> tuple[float, ...]:
        """Returns the delays; the last one repeats."""
        steps: list[float] = []
        delay = self.first
        while len(steps) < MAX_STEPS - 1 and delay < self.longest:
            steps.append(delay)
            if self.factor == 1.0:
                return tuple(steps)
            delay *= self.factor
        return (*steps, min(delay, self.longest))


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a failed attempt is repeated; seconds."""

    #: delays between attempts; the last one repeats
    schedule: tuple[float, ...] | None = None
    exponential: Exponential | None = None
    #: age at which a notification becomes a dead letter
    give_up: float | None = None
    #: statuses after which there is no further attempt
    permanent: tuple[int, ...] = ()

    def steps(self) -> tuple[float, ...] | None:
        """Returns the delays between attempts; None: those of the server."""
        return self.schedule if self.exponential is None else self.exponential.steps()


class SinkSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The public part of a sink's settings."""

    #: digest of all settings, credentials included
    id: str = ""
    #: names in lower case
    headers: dict[str, str] = {}
    #: type of the credentials; empty for none
    credentials: str = ""
    #: seconds per attempt
    timeout: float | None = None
    retry: Retry | None = None
    #: POSTs per second
    rate: float | None = None
    #: whether a failing notification holds back later ones
    ordered: bool = True

    def with_id(self, fingerprint: bytes) -> SinkSettings:
        """Returns the settings with their id; `fingerprint` stands for the credentials."""
        bare = msgspec.structs.replace(self, id="", headers=dict(sorted(self.headers.items())))
        digest = hashlib.blake2b(encode(bare).encode() + b"\0" + fingerprint, digest_size=8).hexdigest()
        return msgspec.structs.replace(self, id=digest)

    @property
    def is_default(self) -> bool:
        return self == _DEFAULT

    def shown(self) -> dict[str, Any]:
        """Returns the settings as a subscriber sees them."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        shown.pop("id", None)
        if self.headers:
            shown["headers"] = {
                name: MASK if is_secret_header(name) else value for name, value in self.headers.items()
            }
        if self.credentials:
            shown["credentials"] = {"type": self.credentials}
        return shown


_DEFAULT = SinkSettings()
_decoder = msgspec.json.Decoder(SinkSettings)


def encode(settings: SinkSettings) -> str:
    return msgspec.json.encode(settings).decode()


def decode(text: str) -> SinkSettings:
    """Reads stored settings; an empty text is the default."""
    return _decoder.decode(text) if text else _DEFAULT


# -- credentials ----------------------------------------------------------------------------------------


class _Secret(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    #: headers that they set
    sets: ClassVar[tuple[str, ...]] = ("authorization",)

    def __repr__(self) -> str:  # logs and failed assertions must not print secrets
        return f"{type(self).__name__}(…)"


class Bearer(_Secret, frozen=True, tag="bearer"):
    token: str


class Basic(_Secret, frozen=True, tag="basic"):
    user: str
    password: str


class ApiKey(_Secret, frozen=True, tag="api_key"):
    """A secret header of any name."""

    header: str
    value: str
    sets: ClassVar[tuple[str, ...]] = ()


class OAuth2(_Secret, frozen=True, tag="oauth2"):
    """OAuth 2 client credentials (RFC 6749, section 4.4)."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    audience: str | None = None
    #: how the client identifies itself at the token endpoint
    authentication: Literal["basic", "body"] = "basic"


class Certificate(_Secret, frozen=True, tag="certificate"):
    """A client certificate for mutual TLS; both as PEM."""

    certificate: str
    key: str
    sets: ClassVar[tuple[str, ...]] = ()


Credentials = Bearer | Basic | ApiKey | OAuth2 | Certificate
_credentials: msgspec.json.Decoder[Credentials] = msgspec.json.Decoder(Credentials)


def type_of(credentials: Credentials) -> str:
    return str(type(credentials).__struct_config__.tag)


def encode_credentials(credentials: Credentials) -> str:
    return msgspec.json.encode(credentials).decode()


def decode_credentials(text: str) -> Credentials:
    """Reads stored credentials; raises `msgspec.MsgspecError`."""
    return _credentials.decode(text)


# -- checks ---------------------------------------------------------------------------------------------


def check_headers(headers: Mapping[str, str], credentials: Credentials | None = None) -> dict[str, str]:
    """Returns the headers with names in lower case; raises `InvalidSink`."""
    if len(headers) > MAX_HEADERS:
        raise _wrong("headers", f"must be at most {MAX_HEADERS}, got {len(headers)}")
    found: dict[str, str] = {}
    for name, value in headers.items():
        place = f"headers/{_escaped(name)}"
        lower = check_header_name(name, place)
        if lower in found:
            raise _wrong(place, "must be unique: names of headers ignore case", f'header "{name[:80]}"')
        if credentials is not None and lower in _set_by(credentials):
            raise _wrong(
                place, "must not be given together with credentials, which set it", f'header "{lower}"'
            )
        if value == MASK and is_secret_header(lower):
            raise _wrong(
                place,
                f"must have its value, got {MASK}, which stands for it in answers; a change keeps the value, "
                "but only for the same URL",
                f'header "{lower}"',
            )
        found[lower] = check_value(value, place, f'header "{lower}"')
    size = sum(len(name) + len(value) + 4 for name, value in found.items())
    if size > MAX_HEADER_BYTES:
        raise _wrong("headers", f"must have at most {MAX_HEADER_BYTES} bytes, got {size}")
    return found


def is_secret_header(name: str) -> bool:
    """Returns whether the value of a header is hidden in answers."""
    return _SECRET.search(name.lower()) is not None


def _set_by(credentials: Credentials) -> Iterable[str]:
    return [credentials.header.lower()] if isinstance(credentials, ApiKey) else credentials.sets


def check_header_name(name: str, place: str) -> str:
    """Returns the name in lower case; raises `InvalidSink`."""
    if not 1 <= len(name) <= MAX_NAME or not _TOKEN.match(name):
        raise _wrong(
            place,
            f"must be 1 to {MAX_NAME} letters, digits or !#$%&'*+.^_`|~-, got {name[:80]!r}",
            "the name of a header",
        )
    lower = name.lower()
    if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
        raise _wrong(place, "must not be set: the network or the protocol sets it", f'header "{lower}"')
    return lower


def check_value(value: str, place: str, thing: str, most: int = MAX_VALUE) -> str:
    """Returns a header's value; raises `InvalidSink`, whose message never contains it."""
    if len(value) > most:
        raise _wrong(place, f"must have at most {most} characters, got {len(value)}", thing)
    if not _VALUE.match(value):
        raise _wrong(
            place,
            "must be printable ASCII without control characters and without spaces at its ends",
            thing,
        )
    return value


def check_credentials(credentials: Credentials, *, is_broker: bool = False) -> None:
    """Raises `InvalidSink`, without a secret in its message; the caller checks a token endpoint's URL."""
    place = "credentials"
    if isinstance(credentials, Bearer):
        _check_visible(credentials.token, f"{place}/token", MAX_TOKEN)
    elif isinstance(credentials, Basic):
        _check_text(credentials.user, f"{place}/user")
        if ":" in credentials.user and not is_broker:  # users of brokers such as vhost:user have one
            raise _wrong(f"{place}/user", "must not contain a colon")
        _check_text(credentials.password, f"{place}/password")
    elif isinstance(credentials, ApiKey):
        check_header_name(credentials.header, f"{place}/header")
        check_value(credentials.value, f"{place}/value", "value")
    elif isinstance(credentials, OAuth2):
        _check_text(credentials.client_id, f"{place}/client_id")
        _check_text(credentials.client_secret, f"{place}/client_secret")
        for name in ("scope", "audience"):
            if getattr(credentials, name) is not None:
                _check_text(getattr(credentials, name), f"{place}/{name}")
    else:
        _check_certificate(credentials, place)


def _check_visible(text: str, place: str, most: int) -> None:
    if not 1 <= len(text) <= most or not _VISIBLE.match(text):
        raise _wrong(place, f"must be 1 to {most} printable ASCII characters without spaces")


def _check_text(text: str, place: str) -> None:
    if not 1 <= len(text) <= MAX_TEXT or _CONTROL.search(text):
        raise _wrong(place, f"must be 1 to {MAX_TEXT} characters without control characters")


def _check_certificate(given: Certificate, place: str) -> None:
    # Imported here: programs that only read settings need no cryptography.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    for name in ("certificate", "key"):
        if len(getattr(given, name)) > MAX_PEM:
            raise _wrong(f"{place}/{name}", f"must have at most {MAX_PEM} characters")
    try:
        chain = x509.load_pem_x509_certificates(given.certificate.encode())
    except ValueError:
        raise _wrong(
            f"{place}/certificate", "must be a PEM certificate, or a chain that begins with it"
        ) from None
    try:
        key = load_pem_private_key(given.key.encode(), None)
    except (ValueError, TypeError):
        raise _wrong(f"{place}/key", "must be a PEM private key without a passphrase") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if chain[0].public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        raise _wrong(f"{place}/key", "must be the key of the first certificate")


def check_timeout(seconds: float) -> float:
    return _within(seconds, SHORTEST_TIMEOUT, LONGEST_TIMEOUT, "timeout", "seconds")


def check_rate(rate: float) -> float:
    return _within(rate, SLOWEST_RATE, FASTEST_RATE, "rate", "deliveries per second")


def check_retry(retry: Retry) -> Retry:
    """Raises `InvalidSink` unless the policy ends and its delays are within bounds."""
    if retry.schedule is not None and retry.exponential is not None:
        raise _wrong("retry", "must have schedule or exponential, not both")
    if retry.schedule is not None:
        if not 1 <= len(retry.schedule) <= MAX_STEPS:
            raise _wrong("retry/schedule", f"must have 1 to {MAX_STEPS} delays, got {len(retry.schedule)}")
        for place, step in enumerate(retry.schedule):
            _within(step, SHORTEST_STEP, LONGEST_STEP, f"retry/schedule/{place}", "seconds")
    if retry.exponential is not None:
        growth = retry.exponential
        _within(growth.first, SHORTEST_STEP, LONGEST_STEP, "retry/exponential/first", "seconds")
        _within(growth.factor, 1.0, LARGEST_FACTOR, "retry/exponential/factor", "")
        _within(growth.longest, growth.first, LONGEST_STEP, "retry/exponential/longest", "seconds")
    if retry.give_up is not None:
        _within(retry.give_up, SHORTEST_GIVE_UP, LONGEST_GIVE_UP, "retry/give_up", "seconds")
    elif retry.schedule is not None or retry.exponential is not None:
        raise _wrong("retry", "must have give_up, the age at which retries end: it must not retry for ever")
    for place, status in enumerate(retry.permanent):
        if not 300 <= status <= 599 or status in (401, 408, 425, 429):
            raise _wrong(
                f"retry/permanent/{place}",
                f"must be a status from 300 to 599 other than 401, 408, 425 and 429, got {status}",
            )
    if len(set(retry.permanent)) != len(retry.permanent):
        raise _wrong("retry/permanent", "must not repeat a status")
    return retry


def _within(value: float, least: float, most: float, place: str, unit: str) -> float:
    if not (math.isfinite(value) and least <= value <= most):
        of = f" {unit}" if unit else ""
        raise _wrong(place, f"must be from {least:g} to {most:g}{of}, got {value:g}")
    return value


def _wrong(place: str, rule: str, thing: str | None = None) -> InvalidSink:
    return InvalidSink(f"{thing or place.replace('/', '.')} {rule}", pointer=f"/{place}")


def _escaped(name: str) -> str:
    return name[:80].replace("~", "~0").replace("/", "~1")

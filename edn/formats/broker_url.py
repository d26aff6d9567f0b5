"""URLs of message brokers: the places that sinks publish to and sources consume from.

| broker | sink | source |
|---|---|---|
| AMQP 0-9-1 | `amqp://host/vhost?exchange=e&routing_key=k`, or `?queue=q` | `amqp://host/vhost?queue=q` |
| MQTT 5 | `mqtt://host/topic` | `mqtt://host/filter`, such as `sensors/+/temperature` |
| NATS JetStream | `nats://host/subject` | `nats://host/STREAM` |

`amqps`, `mqtts` and `tls` are the same over TLS. User and password stand before the host, as clients of these
brokers write them. Those of a sink become sealed credentials (`split_credentials`) before its URL is stored;
the URL of a source is sealed as a whole, and `masked` hides the password wherever it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from edn.errors import InvalidInput, InvalidSink
from edn.formats.sink_settings import Basic, Bearer, Certificate, Credentials

Kind = Literal["amqp", "mqtt", "nats"]
Role = Literal["sink", "source"]

#: scheme → broker, whether it uses TLS, default port
SCHEMES: Mapping[str, tuple[Kind, bool, int]] = {
    "amqp": ("amqp", False, 5672),
    "amqps": ("amqp", True, 5671),
    "mqtt": ("mqtt", False, 1883),
    "mqtts": ("mqtt", True, 8883),
    "nats": ("nats", False, 4222),
    "tls": ("nats", True, 4222),
}
#: scheme of the same broker over TLS
SECURE: Mapping[Kind, str] = {"amqp": "amqps", "mqtt": "mqtts", "nats": "tls"}
MAX_URL = 2048
#: stands for a password in a URL that is shown
MASK = "***"
#: unacknowledged messages of a source, by default and at most
PREFETCH, MOST_PREFETCH = 500, 10_000

_OPTIONS: Mapping[tuple[Kind, Role], frozenset[str]] = {
    ("amqp", "sink"): frozenset({"exchange", "routing_key", "queue", "mandatory"}),
    ("mqtt", "sink"): frozenset({"retain"}),
    ("nats", "sink"): frozenset({"stream"}),
    ("amqp", "source"): frozenset({"queue", "prefetch"}),
    ("mqtt", "source"): frozenset({"client_id", "session_expiry", "prefetch"}),
    ("nats", "source"): frozenset({"consumer", "subject", "deliver", "prefetch"}),
}
_FORMS: Mapping[tuple[Kind, Role], str] = {
    ("amqp", "sink"): "amqp://host/vhost?exchange=NAME&routing_key=KEY or amqp://host/vhost?queue=NAME",
    ("mqtt", "sink"): "mqtt://host/topic",
    ("nats", "sink"): "nats://host/subject",
    ("amqp", "source"): "amqp://host/vhost?queue=NAME",
    ("mqtt", "source"): "mqtt://host/filter",
    ("nats", "source"): "nats://host/STREAM",
}
#: one token of a NATS subject or the name of a stream
_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+\Z")
#: names of AMQP are short strings
_SHORT = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUrl:
    """A parsed URL; equal `broker` means one connection."""

    kind: Kind
    is_secure: bool
    host: str
    port: int
    #: a user without a password may be a token
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    #: client certificate for mutual TLS
    certificate: Certificate | None = None
    #: virtual host, topic, filter, subject or stream
    place: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        return SECURE[self.kind] if self.is_secure else self.kind

    @property
    def broker(self) -> tuple[object, ...]:
        """Identifies the connection: broker, credentials, and for AMQP the virtual host."""
        vhost = self.place if self.kind == "amqp" else ""
        return (self.scheme, self.host, self.port, self.user, self.password, self.certificate, vhost)

    @property
    def prefetch(self) -> int:
        """Messages that a source may hold without an acknowledgement."""
        return int(self.options.get("prefetch", PREFETCH))

    def is_set(self, option: str, default: bool) -> bool:
        given = self.options.get(option)
        return default if given is None else given == "true"


def is_broker(url: str) -> bool:
    """Whether a URL has the scheme of a broker."""
    return url.partition(":")[0].lower() in SCHEMES


def masked(url: str) -> str:
    """Returns a URL of a broker without its password; a user without one may be a token and is hidden too."""
    before, userinfo, after = _split_userinfo(url)
    if not userinfo:
        return url
    user, colon, _ = userinfo[:-1].partition(":")
    return f"{before}{f'{user}:{MASK}' if colon else MASK}@{after}"


def _split_userinfo(url: str) -> tuple[str, str, str]:
    """Returns a URL in three parts; the second is the userinfo with its @, or empty."""
    scheme, separator, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    userinfo, at, _ = authority.rpartition("@")
    if not is_broker(url) or not separator or not at:
        return url, "", ""
    return scheme + separator, userinfo + at, rest[len(userinfo) + 1 :]


def has_mask(url: str) -> bool:
    """Whether a URL was shown by this network and so lacks its password."""
    return is_broker(url) and masked(url) == url and f"{MASK}@" in url


def split_credentials(url: str) -> tuple[str, Credentials | None]:
    """Returns the URL of a sink without user and password, and these as credentials; raises `InvalidSink`."""
    parsed = parse(url, "sink")
    if parsed.user is None:
        return url, None
    before, _, after = _split_userinfo(url)
    if parsed.password is not None:
        return before + after, Basic(parsed.user, parsed.password)
    if parsed.kind == "amqp":
        raise InvalidSink(
            "the sink's URL must have a password after the user; sink.credentials may have both instead"
        )
    return before + after, Bearer(parsed.user)


def with_credentials(url: BrokerUrl, credentials: Credentials) -> BrokerUrl:
    """Returns the URL of a sink with the user, password, token or certificate of its credentials."""
    if isinstance(credentials, Basic):
        return replace(url, user=credentials.user, password=credentials.password)
    if isinstance(credentials, Bearer):
        return replace(url, user=credentials.token, password=None)
    if isinstance(credentials, Certificate):
        return replace(url, certificate=credentials)
    return url


def check_credentials(url: str, kind: str) -> None:
    """Raises `InvalidSink` unless the broker of a sink can be given credentials of a type."""
    parsed = parse(url, "sink")
    allowed = ["basic", *(["bearer"] if parsed.kind != "amqp" else []), "certificate"]
    if kind not in allowed:
        raise InvalidSink(
            f"credentials of a sink with the scheme {parsed.scheme} must have the type "
            f"{', '.join(allowed[:-1])} or {allowed[-1]}, got {kind}",
            pointer="/credentials",
        )
    if kind == "certificate" and not parsed.is_secure:
        raise InvalidSink(
            f"credentials of type certificate must be given with an {SECURE[parsed.kind]}:// sink, "
            f"got plain {parsed.scheme}",
            pointer="/credentials",
        )


def parse(url: str, role: Role) -> BrokerUrl:
    """Parses the URL of a sink (raises `InvalidSink`) or of a source (raises `InvalidInput`)."""
    try:
        return _parse(url, role)
    except ValueError as error:
        kind = InvalidSink if role == "sink" else InvalidInput
        raise kind(f"the {role}'s URL {error}") from None


def _parse(url: str, role: Role) -> BrokerUrl:
    if len(url) > MAX_URL:
        raise ValueError(f"must have at most {MAX_URL} characters, got {len(url)}")
    if any(character <= " " or character == "\x7f" for character in url):
        raise ValueError("must not contain spaces or control characters; percent-encode them")
    scheme = url.partition(":")[0].lower()
    if scheme not in SCHEMES or not url[len(scheme) :].startswith("://"):
        raise ValueError(
            f'must begin with one of {", ".join(f"{one}://" for one in SCHEMES)}, got "{scheme[:20]}"'
        )
    kind, is_secure, default_port = SCHEMES[scheme]
    if has_mask(url):
        raise ValueError(f"must contain the password, got {MASK}, which stands for it in answers")
    # "#" is a wildcard of MQTT, and no broker has fragments.
    parts = urlsplit(url.replace("#", "%23") if kind == "mqtt" else url)
    if kind != "mqtt" and "#" in url:
        raise ValueError('must not contain a fragment ("#…")')
    host, port = parts.hostname, parts.port
    if not host:
        raise ValueError(f"must name a host: {_FORMS[kind, role]}")
    if port == 0:
        raise ValueError("must have a port from 1 to 65535, got 0")
    options = _options(parts.query, kind, role)
    place = _decoded(parts.path[1:] if parts.path.startswith("/") else parts.path)
    _check_place(place, options, kind, role)
    if kind == "amqp" and not place:
        place = "/"
    return BrokerUrl(
        kind=kind,
        is_secure=is_secure,
        host=host,
        port=port or default_port,
        user=None if parts.username is None else _decoded(parts.username),
        password=None if parts.password is None else _decoded(parts.password),
        place=place,
        options=options,
    )


def _decoded(text: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("must be UTF-8 after decoding its escapes") from None
    if any(character in decoded for character in "\0\r\n"):
        raise ValueError("must not contain %00, %0D or %0A")
    return decoded


def _options(query: str, kind: Kind, role: Role) -> dict[str, str]:
    allowed = _OPTIONS[kind, role]
    found: dict[str, str] = {}
    for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True, errors="strict"):
        if name not in allowed:
            raise ValueError(f'must have no options but {", ".join(sorted(allowed))}, got "{name[:40]}"')
        if name in found:
            raise ValueError(f'must have the option "{name}" once')
        if any(character in value for character in "\0\r\n"):
            raise ValueError("must not contain %00, %0D or %0A")
        found[name] = value
    for name in ("mandatory", "retain"):
        if found.get(name, "true") not in ("true", "false"):
            raise ValueError(f'option {name} must be true or false, got "{found[name][:40]}"')
    if found.get("deliver", "all") not in ("all", "new"):
        raise ValueError(f'option deliver must be all or new, got "{found["deliver"][:40]}"')
    for name, most in (("prefetch", MOST_PREFETCH), ("session_expiry", 0xFFFFFFFE)):
        given = found.get(name, "1")
        if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:12]) <= most:
            raise ValueError(f'option {name} must be an integer from 1 to {most}, got "{given[:40]}"')
    return found


def _check_place(place: str, options: Mapping[str, str], kind: Kind, role: Role) -> None:
    form = _FORMS[kind, role]
    if kind == "amqp":
        names = [place, *(options.get(name, "") for name in ("exchange", "routing_key", "queue"))]
        if any(len(name.encode()) > _SHORT for name in names):
            raise ValueError(f"must have names of at most {_SHORT} bytes")
        has_queue = bool(options.get("queue"))
        if role == "source" and not has_queue:
            raise ValueError(f"must name a queue: {form}")
        if role == "sink" and has_queue == bool(options.get("exchange") or options.get("routing_key")):
            raise ValueError(f"must name an exchange or a queue: {form}")
        return
    if not place:
        raise ValueError(f"must have the form {form}")
    if kind == "mqtt":
        _check_topic(place, role)
        client = options.get("client_id", "edn")
        if not 1 <= len(client.encode()) <= 128:
            raise ValueError("option client_id must have 1 to 128 bytes")
    elif role == "sink":
        if not all(_TOKEN.match(token) for token in place.split(".")):
            raise ValueError(f'must name a subject without wildcards, got "{place[:80]}"')
    else:
        for name, value in (("stream", place), ("consumer", options.get("consumer", "x"))):
            if not _TOKEN.match(value):
                raise ValueError(f'must name a {name} without ".", "*" and ">", got "{value[:80]}"')
        subject = options.get("subject", ">")
        *first, last = subject.split(".")
        if not all(one == "*" or _TOKEN.match(one) for one in first) or not (
            last in ("*", ">") or _TOKEN.match(last)
        ):
            raise ValueError(f'option subject must be a subject of NATS, got "{subject[:80]}"')


def _check_topic(topic: str, role: Role) -> None:
    """Checks a topic, or a filter of topics, by the rules of MQTT 5."""
    if len(topic.encode()) > 65_535:
        raise ValueError("must have a topic of at most 65535 bytes")
    if role == "sink":
        if "+" in topic or "#" in topic:
            raise ValueError(f'must name a topic without wildcards, got "{topic[:80]}"')
        if topic.startswith("$"):
            raise ValueError(f'must name a topic that does not begin with "$", got "{topic[:80]}"')
        return
    levels = topic.split("/")
    if levels[0] == "$share":
        if (
            len(levels) < 3
            or not levels[1]
            or "+" in levels[1]
            or "#" in levels[1]
            or not "".join(levels[2:])
        ):
            raise ValueError(f'must name a shared subscription as $share/group/filter, got "{topic[:80]}"')
        levels = levels[2:]
    for place, level in enumerate(levels):
        is_last = place == len(levels) - 1
        if ("#" in level and (level != "#" or not is_last)) or ("+" in level and level != "+"):
            raise ValueError(
                f'must have wildcards "+" and "#" as whole levels, "#" as the last, got "{topic[:80]}"'
            )


def write(url: BrokerUrl) -> str:
    """Writes a URL in its canonical form, with the password."""
    userinfo = ""
    if url.user is not None:
        userinfo = quote(url.user, safe="")
        if url.password is not None:
            userinfo += ":" + quote(url.password, safe="")
        userinfo += "@"
    host = f"[{url.host}]" if ":" in url.host else url.host
    place = quote(url.place, safe="" if url.kind == "amqp" else "/$+*.:,@!~")
    query = "&".join(f"{name}={quote(value, safe='*.')}" for name, value in url.options.items())
    return f"{url.scheme}://{userinfo}{host}:{url.port}/{place}" + (f"?{query}" if query else "")

"""CloudEvents 1.0 over HTTP: reads requests and writes notifications, without I/O.

A request is **binary** (context attributes in `ce-…` headers, data in the body), **structured** (one JSON
object) or a **batch** of those, by its media type. The event of the topic has the fields of the data, and the
context attributes below `ce`, so that filters can use both: `price > 30 and ce.type == "sold"`. Attributes
that the topic does not declare are refused by name.

| CloudEvents | here |
|---|---|
| `id`, with `source` | `$id`, as `source#id`, which is unique |
| `time` | `$time` |
| other context attributes | `ce.<name>`, with the type of the topic |
| `data`, an object | its fields |
| `data`, anything else | `ce.data`; binary data as `ce.data_base64` |
| `specversion`, `datacontenttype` of JSON | checked, not stored |

Notifications are written the other way round. Events that were published as plain JSON get the `source` and
`type` of their topic.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

import msgspec

from edn.errors import InvalidEvent, InvalidSink, TooLarge, Unsupported
from edn.formats import strict_json

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
SPECVERSION = "1.0"
#: prefix of context attributes in a topic
PREFIX = "ce."
MODES = ("binary", "structured", "batch")
#: bytes per header value
MAX_VALUE = 8192

_NAME = re.compile(r"[a-z0-9]{1,64}\Z")
_REQUIRED = ("id", "source", "specversion", "type")
#: context attributes that are not stored as `ce.<name>`
_OWN = frozenset({"id", "specversion", "time", "datacontenttype", "traceparent", "tracestate"})
_NOT_NAMES = frozenset({"data"})
#: context attributes that the network writes itself
_WRITTEN = frozenset({"id", "specversion", "time"})
_JSON = re.compile(r"[^;]*[/+]json\s*(;|\Z)", re.IGNORECASE)
_INTEGER = re.compile(r"-?[0-9]{1,19}\Z")
_MEDIA = re.compile(r"[!-~]+/[ -~]+\Z")

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class CloudEvent:
    #: context attributes except specversion: strings, booleans and integers
    context: dict[str, Any]
    data: Any = None
    binary: bytes | None = None
    #: JSON pointer to the event in a batch
    place: str = ""


def mode_of(content_type: bytes, headers: Headers) -> str | None:
    """Returns the mode of a request with CloudEvents, or None for plain JSON; raises `Unsupported`."""
    media = content_type.partition(b";")[0].strip().lower()
    if media.startswith(b"application/cloudevents"):
        if media == BATCH.encode():
            return "batch"
        if media in (STRUCTURED.encode(), b"application/cloudevents"):
            return "structured"
        raise Unsupported(f"CloudEvents must be JSON, got {media.decode('latin-1')[:80]}")
    return "binary" if any(name == b"ce-specversion" for name, _ in headers) else None


def read(mode: str, content_type: bytes, headers: Headers, body: bytes) -> list[CloudEvent]:
    """Reads the events of a request; raises `InvalidInput`."""
    if mode == "binary":
        return [_binary(content_type, headers, body)]
    value = strict_json.decode(body)
    if mode == "structured":
        return [_structured(value, 0)]
    if not isinstance(value, list):
        raise InvalidEvent("a batch of CloudEvents must be an array", index=0)
    return [_of_batch(one, index) for index, one in enumerate(value)]


def plain(events: Iterable[CloudEvent], types: Mapping[str, str]) -> bytes:
    """Converts events to JSON for a topic with these attributes; raises `InvalidEvent`."""
    made = []
    for index, event in enumerate(events):
        with _pointing_from(event.place):
            made.append(_plain(event, types, index))
    return msgspec.json.encode(made)


# -- reading ----------------------------------------------------------------------------------------------


def _binary(content_type: bytes, headers: Headers, body: bytes) -> CloudEvent:
    context: dict[str, Any] = {}
    for raw, value in headers:
        if not raw.startswith(b"ce-"):
            continue
        name = raw[3:].decode("latin-1").lower()
        if name == "datacontenttype":
            raise InvalidEvent(
                "ce-datacontenttype must not be sent in binary mode; use Content-Type", index=0
            )
        if name in context:
            raise InvalidEvent(f"header ce-{name[:60]} is repeated", index=0)
        _check_name(name, 0)
        context[name] = header_value(value, name)
    kind = content_type.decode("latin-1")
    if kind:
        context["datacontenttype"] = kind
    _check_context(context, 0)
    if not body:
        return CloudEvent(context)
    if not kind or _JSON.match(kind):
        return CloudEvent(context, strict_json.decode(body))
    if kind.lower().startswith("text/"):
        try:
            return CloudEvent(context, body.decode())
        except UnicodeDecodeError:
            pass
    return CloudEvent(context, binary=body)


def header_value(value: bytes, name: str = "") -> str:
    """Decodes the value of a header: removes quotes, and decodes escapes once."""
    if len(value) > MAX_VALUE:
        raise TooLarge(f"header ce-{name} must have at most {MAX_VALUE} bytes, got {len(value)}")
    text = value.strip()
    if len(text) >= 2 and text.startswith(b'"') and text.endswith(b'"'):
        text = re.sub(rb"\\(.)", rb"\1", text[1:-1], flags=re.DOTALL)
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidEvent(f"header ce-{name} must be UTF-8 after decoding its escapes", index=0) from None


def _of_batch(value: Any, index: int) -> CloudEvent:
    with _pointing_from(f"/{index}"):
        return replace(_structured(value, index), place=f"/{index}")


@contextmanager
def _pointing_from(place: str) -> Iterator[None]:
    """Makes pointers of errors relative to the request, which may contain several events."""
    try:
        yield
    except InvalidEvent as error:
        if error.pointer is not None:
            error.pointer = place + error.pointer
        raise


def _structured(value: Any, index: int) -> CloudEvent:
    if not isinstance(value, dict):
        raise InvalidEvent("a CloudEvent must be an object", index=index)
    context: dict[str, Any] = {}
    for name, given in value.items():
        if name in ("data", "data_base64") or given is None:
            continue
        _check_name(name, index)
        if not isinstance(given, str | bool | int):
            raise InvalidEvent(
                f'context attribute "{name}" must be a string, a boolean or an integer',
                index=index,
                pointer=f"/{name}",
            )
        context[name] = given
    _check_context(context, index)
    if "data_base64" not in value:
        return CloudEvent(context, value.get("data"))
    if "data" in value:
        raise InvalidEvent(
            "data and data_base64 must not be sent together", index=index, pointer="/data_base64"
        )
    encoded = value["data_base64"]
    try:
        if not isinstance(encoded, str):
            raise ValueError
        binary = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidEvent("data_base64 must be base64", index=index, pointer="/data_base64") from None
    kind = context.get("datacontenttype")
    if isinstance(kind, str) and _JSON.match(kind):
        return CloudEvent(context, strict_json.decode(binary))
    return CloudEvent(context, binary=binary)


def _check_name(name: str, index: int) -> None:
    if not _NAME.match(name) or name in _NOT_NAMES:
        raise InvalidEvent(
            f'the name of a context attribute must be lower-case letters and digits, got "{name[:60]}"',
            index=index,
        )


def _check_context(context: dict[str, Any], index: int) -> None:
    for name in _REQUIRED:
        given = context.get(name)
        if not isinstance(given, str) or not given:
            raise InvalidEvent(
                f'context attribute "{name}" must be a non-empty string', index=index, pointer=f"/{name}"
            )
    if context["specversion"] != SPECVERSION:
        raise InvalidEvent(
            f'specversion must be {SPECVERSION}, got "{context["specversion"][:20]}"',
            index=index,
            pointer="/specversion",
        )
    for name in ("time", "datacontenttype", "subject", "dataschema"):
        if name in context and (not isinstance(context[name], str) or not context[name]):
            raise InvalidEvent(f'"{name}" must be a non-empty string', index=index, pointer=f"/{name}")


# -- to a topic's attributes ------------------------------------------------------------------------------


def _plain(event: CloudEvent, types: Mapping[str, str], index: int) -> dict[str, Any]:
    context = event.context
    own: dict[str, Any] = {}
    for name, value in context.items():
        if name not in _OWN:
            own[name] = _declared(name, value, types, index)
    made: dict[str, Any] = {}
    if event.binary is not None:
        own["data_base64"] = _declared("data_base64", base64.b64encode(event.binary).decode(), types, index)
    elif isinstance(event.data, dict):
        if "ce" in event.data:
            raise InvalidEvent(
                'data must not contain a field "ce": it is reserved for context attributes', index=index
            )
        made = {name: value for name, value in event.data.items() if not name.startswith("$")}
        if len(made) < len(event.data):
            raise InvalidEvent('data must not contain a field that begins with "$"', index=index)
    elif event.data is not None:
        if f"{PREFIX}data" not in types:
            raise InvalidEvent(
                "data must be an object, unless the topic declares ce.data",
                index=index,
                pointer="/data",
            )
        own["data"] = event.data
    made["ce"] = own
    made["$id"] = f"{context['source']}#{context['id']}"
    if "time" in context:
        made["$time"] = context["time"]
    return made


def _declared(name: str, value: Any, types: Mapping[str, str], index: int) -> Any:
    """Converts a context attribute to the type that the topic declares."""
    kind = types.get(PREFIX + name)
    if kind is None:
        raise InvalidEvent(
            f'the topic does not declare the context attribute "{name}"; add an attribute '
            f'"{PREFIX}{name}": "string"',
            index=index,
            pointer=f"/{name}",
        )
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if kind in ("string", "time"):
        return text
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind in ("integer", "number") and _INTEGER.match(text):
        return int(text)
    raise InvalidEvent(
        f'context attribute "{name}" must be of type {kind}, got "{text[:60]}"',
        index=index,
        pointer=f"/{name}",
    )


# -- writing ----------------------------------------------------------------------------------------------


def defaults(topic: str) -> dict[str, str]:
    """Returns the required context attributes for events that were published as plain JSON."""
    return {"source": f"/v1/topics/{topic}", "type": f"edn.{topic}"}


def from_notification(topic: str, event: Mapping[str, Any]) -> CloudEvent:
    """Converts an event of a notification (`id`, `time`, `attributes`) to a CloudEvent."""
    assumed = defaults(topic)
    attributes = dict(event["attributes"])
    own = attributes.pop("ce", None)
    kept: dict[str, Any] = dict(own) if isinstance(own, dict) else {}
    kept |= {
        name.removeprefix(PREFIX): attributes.pop(name)
        for name in list(attributes)
        if name.startswith(PREFIX)
    }
    kept = {name: value for name, value in kept.items() if value is not None}
    data: Any = kept.pop("data", None)
    kind = kept.pop("datacontenttype", None)
    binary = _decoded(kept.get("data_base64"))
    if binary is not None:
        del kept["data_base64"]
    # Attributes below `ce` that cannot be context attributes stay in the data.
    odd = {name: kept.pop(name) for name in list(kept) if not _is_context(name, kept[name])}
    if odd:
        attributes["ce"] = odd
    source = kept.pop("source", assumed["source"])
    id = str(event["id"])
    context = {
        "id": id.removeprefix(f"{source}#") or id,
        "source": source,
        "type": kept.pop("type", assumed["type"]),
        "time": event["time"],
        **{name: _context_value(value) for name, value in kept.items()},
    }
    if binary is not None:
        known = isinstance(kind, str) and _MEDIA.match(kind)
        context["datacontenttype"] = kind if known else "application/octet-stream"
        return CloudEvent(context, binary=binary)
    if attributes or data is None:
        data = attributes
    context["datacontenttype"] = "application/json"
    return CloudEvent(context, data)


def _decoded(encoded: object) -> bytes | None:
    """Decodes `ce.data_base64`; None if it is not base64, as an event of plain JSON may have it."""
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except ValueError:
        return None


def _is_context(name: str, value: object) -> bool:
    """Whether an attribute below `ce` can be a context attribute that the network does not write itself."""
    return bool(_NAME.match(name)) and name not in _WRITTEN and not isinstance(value, dict)


def _context_value(value: Any) -> str | bool | int:
    """Converts a value to a type of CloudEvents, which have no fractions: other numbers become text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool | int | str) else str(value)


def as_binary(event: CloudEvent) -> tuple[list[tuple[str, str]], str, bytes]:
    """Returns headers, content type and body."""
    headers = [("ce-specversion", SPECVERSION)]
    for name, value in event.context.items():
        if name != "datacontenttype":
            text = ("true" if value else "false") if isinstance(value, bool) else str(value)
            headers.append((f"ce-{name}", escaped(text)))
    body = event.binary if event.binary is not None else msgspec.json.encode(event.data)
    return headers, str(event.context["datacontenttype"]), body


#: U+0021 to U+007E except the quotation mark and the percent sign
_UNESCAPED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def escaped(text: str) -> str:
    """Percent-encodes a value for a header."""
    return quote(text, safe=_UNESCAPED)


def as_structured(event: CloudEvent) -> dict[str, Any]:
    made: dict[str, Any] = {"specversion": SPECVERSION, **event.context}
    if event.binary is not None:
        made["data_base64"] = base64.b64encode(event.binary).decode()
    else:
        made["data"] = event.data
    return made


# -- addresses of sinks -----------------------------------------------------------------------------------

SCHEME = "cloudevents"


@dataclass(frozen=True, slots=True)
class SinkAddress:
    """A sink of CloudEvents, written as one URL so that it is an address like any other."""

    mode: str
    #: URL that events are posted to
    to: str
    #: whether the sink must consent first (`edn_server.sinks.consent`)
    consent: bool = False

    def url(self) -> str:
        fields = {"mode": self.mode, "to": self.to, **({"consent": "1"} if self.consent else {})}
        return f"{SCHEME}:?{urlencode(fields)}"

    @classmethod
    def parse(cls, address: str) -> SinkAddress:
        """Parses a URL; raises `InvalidSink`."""
        scheme, _, rest = address.partition(":")
        try:
            pairs = dict(parse_qsl(rest.removeprefix("?"), strict_parsing=True, max_num_fields=3))
        except ValueError:
            pairs = {}
        consent = pairs.pop("consent", "0")
        if (
            scheme != SCHEME
            or set(pairs) != {"mode", "to"}
            or pairs["mode"] not in MODES
            or consent not in ("0", "1")
        ):
            raise InvalidSink(
                f"the sink must have the form {SCHEME}:?mode=MODE&to=URL, with mode {', '.join(MODES)}"
            )
        return cls(pairs["mode"], pairs["to"], consent == "1")

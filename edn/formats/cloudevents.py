"""CloudEvents 1.0 over HTTP: reads requests and writes notifications, without I/O.

A request is **binary** (context attributes in `ce-…` headers, data in the body), **structured** (one JSON
object) or a **batch** of those, by its media type. The event of the topic has the fields of the data, and the
context attributes below `ce`, so that filters can use both: `price > 30 and ce.type == "sold"`. The data
keeps its bytes. A closed topic refuses, by name, attributes that it does not declare.

| CloudEvents | here |
|---|---|
| `id`, with `source` | `$id`, as `source#id`, which is unique |
| `time` | `$time` |
| other context attributes | `ce.<name>`, with the type of the topic if it declares them |
| `data`, an object | its fields |
| `data`, an empty object, an object with `ce` or keys that begin with `$`, or anything else | `ce.data` |
| binary data | `ce.data_base64` |
| `specversion`, `datacontenttype` application/json | checked, not stored |

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
#: `datacontenttype` of data without one
_DEFAULT = "application/json"
_INTEGER = re.compile(r"-?[0-9]{1,19}\Z")
_MEDIA = re.compile(r"[!-~]+/[ -~]+\Z")

Headers = Iterable[tuple[bytes, bytes]]
#: the fields of an object, whose values stay JSON text
_Texts = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class CloudEvent:
    #: context attributes except specversion: strings, booleans and integers
    context: dict[str, Any]
    #: JSON text; None if there is no data
    data: msgspec.Raw | None = None
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
        return [_structured(value, msgspec.Raw(body), 0)]
    if not isinstance(value, list):
        raise InvalidEvent("a batch of CloudEvents must be an array", index=0)
    texts = msgspec.json.decode(body, type=list[msgspec.Raw])
    return [_of_batch(one, text, index) for index, (one, text) in enumerate(zip(value, texts, strict=True))]


def plain(events: Iterable[CloudEvent], types: Mapping[str, str], *, closed: bool = False) -> bytes:
    """Converts events to JSON for a topic with these attributes; raises `InvalidEvent`."""
    made = []
    for index, event in enumerate(events):
        with _pointing_from(event.place):
            made.append(_plain(event, types, index, closed=closed))
    return b"[" + b",".join(made) + b"]"


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
        return CloudEvent(context, _checked(body))
    if kind.lower().startswith("text/"):
        try:
            return CloudEvent(context, msgspec.Raw(msgspec.json.encode(body.decode())))
        except UnicodeDecodeError:
            pass
    return CloudEvent(context, binary=body)


def _checked(text: bytes) -> msgspec.Raw:
    """Returns JSON text as it is; raises `MalformedJson` or `TooLarge`."""
    strict_json.decode(text)
    return msgspec.Raw(text.strip())


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


def _of_batch(value: Any, text: msgspec.Raw, index: int) -> CloudEvent:
    with _pointing_from(f"/{index}"):
        return replace(_structured(value, text, index), place=f"/{index}")


@contextmanager
def _pointing_from(place: str) -> Iterator[None]:
    """Makes pointers of errors relative to the request, which may contain several events."""
    try:
        yield
    except InvalidEvent as error:
        if error.pointer is not None:
            error.pointer = place + error.pointer
        raise


def _structured(value: Any, text: msgspec.Raw, index: int) -> CloudEvent:
    """Reads an event from its decoded object and its text."""
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
        return CloudEvent(context, msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get("data"))
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
        return CloudEvent(context, _checked(binary))
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


def _plain(event: CloudEvent, types: Mapping[str, str], index: int, *, closed: bool) -> bytes:
    context = event.context
    own: dict[str, Any] = {}
    for name, value in context.items():
        if name not in _OWN:
            own[name] = _declared(name, value, types, index, closed=closed)
    kind = context.get("datacontenttype")
    if kind is not None and (f"{PREFIX}datacontenttype" in types or not (closed or kind == _DEFAULT)):
        own["datacontenttype"] = kind
    fields = b""
    if event.binary is not None:
        encoded = base64.b64encode(event.binary).decode()
        own["data_base64"] = _declared("data_base64", encoded, types, index, closed=closed)
    elif event.data is not None:
        fields, refusal = _fields(bytes(event.data))
        if refusal and closed and (refusal is not _NO_OBJECT or f"{PREFIX}data" not in types):
            raise InvalidEvent(refusal, index=index, pointer="/data")
        # Without this an empty object could not be told from no data.
        empty = not fields and not closed and f"{PREFIX}data" not in types
        if refusal or empty:
            own["data"] = event.data
    made: dict[str, Any] = {"$id": f"{context['source']}#{context['id']}"}
    if "time" in context:
        made["$time"] = context["time"]
    made["ce"] = own
    start = msgspec.json.encode(made)
    return start[:-1] + b"," + fields + b"}" if fields else start


_NO_OBJECT = "data must be an object, unless the topic declares ce.data or is not closed"


def _fields(data: bytes) -> tuple[bytes, str]:
    """Returns the fields of data without its braces; or a reason why they cannot be fields of an event."""
    if not data.startswith(b"{"):
        return b"", _NO_OBJECT
    for name in msgspec.json.decode(data, type=dict[str, msgspec.Raw]):
        if name == "ce" or name.startswith(PREFIX):
            return b"", 'data of a closed topic must not contain a field "ce": it has the context attributes'
        if name.startswith("$"):
            return b"", 'data of a closed topic must not contain a field that begins with "$"'
    return data[1:-1].strip(), ""


def _declared(name: str, value: Any, types: Mapping[str, str], index: int, *, closed: bool) -> Any:
    """Converts a context attribute to the type that the topic declares."""
    kind = types.get(PREFIX + name)
    if kind is None and not closed:
        return value
    if kind is None:
        raise InvalidEvent(
            f'the topic is closed and does not declare the context attribute "{name}"; add an attribute '
            f'"{PREFIX}{name}": "string"',
            index=index,
            pointer=f"/{name}",
        )
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    if kind in ("string", "time", "bytes"):
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
    """Converts an event of a notification (`id`, `time`, `attributes` as JSON text) to a CloudEvent."""
    assumed = defaults(topic)
    fields = _raw_object(event["attributes"])
    texts = _raw_object(fields.pop("ce", None), fields)
    texts |= {name.removeprefix(PREFIX): fields.pop(name) for name in list(fields) if name.startswith(PREFIX)}
    data = texts.pop("data", None)
    kept = {name: msgspec.json.decode(text) for name, text in texts.items()}
    kept = {name: value for name, value in kept.items() if value is not None}
    kind = kept.pop("datacontenttype", None)
    kind = kind if isinstance(kind, str) and _MEDIA.match(kind) else None
    binary = _decoded(kept.get("data_base64"))
    if binary is not None:
        del kept["data_base64"]
    # Attributes below `ce` that cannot be context attributes stay in the data.
    odd = {name: texts[name] for name, value in kept.items() if not _is_context(name, value)}
    kept = {name: value for name, value in kept.items() if name not in odd}
    if data is not None and (fields or odd):
        odd["data"] = data
    if odd:
        fields["ce"] = msgspec.Raw(msgspec.json.encode(odd))
    is_untouched = not texts and data is None
    is_cloud_event = "source" in kept
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
        context["datacontenttype"] = kind or "application/octet-stream"
        return CloudEvent(context, binary=binary)
    if is_untouched:
        data = event["attributes"]
    elif fields or (data is None and not is_cloud_event):
        data = msgspec.Raw(msgspec.json.encode(fields))
    if data is not None or kind is not None:
        context["datacontenttype"] = kind or _DEFAULT
    return CloudEvent(context, data)


def _raw_object(text: msgspec.Raw | None, fields: _Texts | None = None) -> _Texts:
    """Decodes an object whose values stay JSON text. `fields` gets back a `ce` that is not an object."""
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        if fields is None or text is None:
            raise
        fields["ce"] = text
        return {}


def _decoded(encoded: object) -> bytes | None:
    """Decodes `ce.data_base64`; None if it is not base64, as an event of plain JSON may have it."""
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except ValueError:
        return None


def _is_context(name: str, value: object) -> bool:
    """Whether an attribute below `ce` can be a context attribute that the network does not write itself."""
    return bool(_NAME.match(name)) and name not in _WRITTEN and not isinstance(value, dict | list)


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
    kind = str(event.context.get("datacontenttype", _DEFAULT))
    if event.binary is not None:
        return headers, kind, event.binary
    body = b"" if event.data is None else bytes(event.data)
    if kind.lower().startswith("text/") and body.startswith(b'"'):
        body = msgspec.json.decode(body, type=str).encode()
    return headers, kind, body


#: U+0021 to U+007E except the quotation mark and the percent sign
_UNESCAPED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def escaped(text: str) -> str:
    """Percent-encodes a value for a header."""
    return quote(text, safe=_UNESCAPED)


def as_structured(event: CloudEvent) -> dict[str, Any]:
    made: dict[str, Any] = {"specversion": SPECVERSION, **event.context}
    if event.binary is not None:
        made["data_base64"] = base64.b64encode(event.binary).decode()
    elif event.data is not None:
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

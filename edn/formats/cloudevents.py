"""CloudEvents 1.0 over HTTP, read and written; no network, no topic's secrets, nothing but bytes and headers.

Reading
-------
A request is **binary** (context attributes in `ce-…` headers, data in the body), **structured** (one JSON
object) or a **batch** of those, by its media type. An event becomes the object that a topic takes: the fields
of its data as they are, and its context attributes below `ce`, so that filters name both: `price > 30 and
ce.type == "sold"`. What the topic does not declare is refused, by name: nothing is silently forgotten.

| CloudEvents | here |
|---|---|
| `id`, with `source` | `$id`, as `source#id`: the two together are what is unique |
| `time` | `$time` |
| other context attributes | `ce.<name>`, in the type that the topic declares |
| `data`, an object | its fields |
| `data`, anything else | `ce.data`; binary data as `ce.data_base64` |
| `specversion`, `datacontenttype` of JSON | understood, not kept |

Writing is the same backwards, for events of any origin: one that came as plain JSON gets `source` and `type`
of its topic.
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
#: what context attributes are called here
PREFIX = "ce."
MODES = ("binary", "structured", "batch")
#: characters of one header's value
MAX_VALUE = 8192

_NAME = re.compile(r"[a-z0-9]{1,64}\Z")
_REQUIRED = ("id", "source", "specversion", "type")
#: understood here; all other context attributes are the topic's
_OWN = frozenset({"id", "specversion", "time", "datacontenttype", "traceparent", "tracestate"})
_NOT_NAMES = frozenset({"data"})
#: those that the network writes itself
_WRITTEN = frozenset({"id", "specversion", "time"})
_JSON = re.compile(r"[^;]*[/+]json\s*(;|\Z)", re.IGNORECASE)
_INTEGER = re.compile(r"-?[0-9]{1,19}\Z")
_MEDIA = re.compile(r"[!-~]+/[ -~]+\Z")

Headers = Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class CloudEvent:
    #: all but specversion; strings, booleans and integers
    context: dict[str, Any]
    #: None: there is none
    data: Any = None
    binary: bytes | None = None
    #: of one in a batch, the pointer to it
    place: str = ""


def mode_of(content_type: bytes, headers: Headers) -> str | None:
    """How a request carries CloudEvents; None: it carries plain JSON. Raises `Unsupported`."""
    media = content_type.partition(b";")[0].strip().lower()
    if media.startswith(b"application/cloudevents"):
        if media == BATCH.encode():
            return "batch"
        if media in (STRUCTURED.encode(), b"application/cloudevents"):
            return "structured"
        raise Unsupported(f"CloudEvents are taken as JSON; got {media.decode('latin-1')[:80]}")
    return "binary" if any(name == b"ce-specversion" for name, _ in headers) else None


def read(mode: str, content_type: bytes, headers: Headers, body: bytes) -> list[CloudEvent]:
    """The events of a request; raises `InvalidInput` and its kin."""
    if mode == "binary":
        return [_binary(content_type, headers, body)]
    value = strict_json.decode(body)
    if mode == "structured":
        return [_structured(value, 0)]
    if not isinstance(value, list):
        raise InvalidEvent("a batch of CloudEvents is an array", index=0)
    return [_of_batch(one, index) for index, one in enumerate(value)]


def plain(events: Iterable[CloudEvent], types: Mapping[str, str]) -> bytes:
    """The same as a topic with these attributes takes it; raises `InvalidEvent`."""
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
            raise InvalidEvent("ce-datacontenttype: in binary mode Content-Type says it", index=0)
        if name in context:
            raise InvalidEvent(f"the header ce-{name[:60]} stands twice", index=0)
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
    """What a header's value means: quotes taken off, escapes decoded, once."""
    if len(value) > MAX_VALUE:
        raise TooLarge(f"the header ce-{name} has {len(value)} bytes; at most {MAX_VALUE} are taken")
    text = value.strip()
    if len(text) >= 2 and text.startswith(b'"') and text.endswith(b'"'):
        text = re.sub(rb"\\(.)", rb"\1", text[1:-1], flags=re.DOTALL)
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidEvent(f"the header ce-{name} is no UTF-8 behind its escapes", index=0) from None


def _of_batch(value: Any, index: int) -> CloudEvent:
    with _pointing_from(f"/{index}"):
        return replace(_structured(value, index), place=f"/{index}")


@contextmanager
def _pointing_from(place: str) -> Iterator[None]:
    """What is wrong with an event is pointed at in the request, which may hold several."""
    try:
        yield
    except InvalidEvent as error:
        if error.pointer is not None:
            error.pointer = place + error.pointer
        raise


def _structured(value: Any, index: int) -> CloudEvent:
    if not isinstance(value, dict):
        raise InvalidEvent("a CloudEvent is an object", index=index)
    context: dict[str, Any] = {}
    for name, given in value.items():
        if name in ("data", "data_base64") or given is None:
            continue
        _check_name(name, index)
        if not isinstance(given, str | bool | int):
            raise InvalidEvent(
                f'context attribute "{name}": a string, a boolean or an integer is right',
                index=index,
                pointer=f"/{name}",
            )
        context[name] = given
    _check_context(context, index)
    if "data_base64" not in value:
        return CloudEvent(context, value.get("data"))
    if "data" in value:
        raise InvalidEvent("data and data_base64 exclude each other", index=index, pointer="/data_base64")
    encoded = value["data_base64"]
    try:
        if not isinstance(encoded, str):
            raise ValueError
        binary = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidEvent("data_base64 is no base64", index=index, pointer="/data_base64") from None
    kind = context.get("datacontenttype")
    if isinstance(kind, str) and _JSON.match(kind):
        return CloudEvent(context, strict_json.decode(binary))
    return CloudEvent(context, binary=binary)


def _check_name(name: str, index: int) -> None:
    if not _NAME.match(name) or name in _NOT_NAMES:
        raise InvalidEvent(
            f'context attribute "{name[:60]}": lower-case letters and digits are right', index=index
        )


def _check_context(context: dict[str, Any], index: int) -> None:
    for name in _REQUIRED:
        given = context.get(name)
        if not isinstance(given, str) or not given:
            raise InvalidEvent(
                f'context attribute "{name}" is required, a string', index=index, pointer=f"/{name}"
            )
    if context["specversion"] != SPECVERSION:
        raise InvalidEvent(
            f'specversion "{context["specversion"][:20]}": {SPECVERSION} is understood',
            index=index,
            pointer="/specversion",
        )
    for name in ("time", "datacontenttype", "subject", "dataschema"):
        if name in context and (not isinstance(context[name], str) or not context[name]):
            raise InvalidEvent(f'"{name}" is a string, and not empty', index=index, pointer=f"/{name}")


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
            raise InvalidEvent('data has a field "ce", which is where context attributes go', index=index)
        made = {name: value for name, value in event.data.items() if not name.startswith("$")}
        if len(made) < len(event.data):
            raise InvalidEvent('data has a field that begins with "$", which no attribute does', index=index)
    elif event.data is not None:
        if f"{PREFIX}data" not in types:
            raise InvalidEvent(
                "data is no object; a topic that declares ce.data takes a value there",
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
    """A context attribute in the type that the topic gives it."""
    kind = types.get(PREFIX + name)
    if kind is None:
        raise InvalidEvent(
            f'the topic does not keep the context attribute "{name}": PUT it with the attribute '
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
        f'context attribute "{name}" is "{text[:60]}"; the topic keeps it as {kind}',
        index=index,
        pointer=f"/{name}",
    )


# -- writing ----------------------------------------------------------------------------------------------


def defaults(topic: str) -> dict[str, str]:
    """The context attributes that every CloudEvent has, for events of a topic that came without."""
    return {"source": f"/v1/topics/{topic}", "type": f"edn.{topic}"}


def written(topic: str, event: Mapping[str, Any]) -> CloudEvent:
    """An event of a notification (`id`, `time`, `attributes`) as a CloudEvent."""
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
    # A topic may call attributes what no context attribute can be called: they stay where they were.
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
    """What the text of `ce.data_base64` stands for; None if it is none, as one of plain JSON may be."""
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except ValueError:
        return None


def _is_context(name: str, value: object) -> bool:
    """Whether an attribute below `ce` can be a context attribute that is not written from elsewhere."""
    return bool(_NAME.match(name)) and name not in _WRITTEN and not isinstance(value, dict)


def _context_value(value: Any) -> str | bool | int:
    """CloudEvents know no fractions: an integer is one however it was spelt, others go as text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool | int | str) else str(value)


def as_binary(event: CloudEvent) -> tuple[list[tuple[str, str]], str, bytes]:
    """Headers, content type and body."""
    headers = [("ce-specversion", SPECVERSION)]
    for name, value in event.context.items():
        if name != "datacontenttype":
            text = ("true" if value else "false") if isinstance(value, bool) else str(value)
            headers.append((f"ce-{name}", escaped(text)))
    body = event.binary if event.binary is not None else msgspec.json.encode(event.data)
    return headers, str(event.context["datacontenttype"]), body


#: U+0021 to U+007E, but for the quotation mark and the percent sign
_UNESCAPED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def escaped(text: str) -> str:
    """A value as it may stand in a header."""
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
    """A sink that takes CloudEvents, as one address: stored, merged and retried like any other."""

    mode: str
    #: where events are posted
    to: str
    #: nothing is posted before the sink has consented (`edn_server.sinks.consent`)
    consent: bool = False

    def url(self) -> str:
        fields = {"mode": self.mode, "to": self.to, **({"consent": "1"} if self.consent else {})}
        return f"{SCHEME}:?{urlencode(fields)}"

    @classmethod
    def parse(cls, address: str) -> SinkAddress:
        """Raises `InvalidSink`."""
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
            raise InvalidSink(f"{SCHEME}:?mode=binary&to=… is right, with mode binary, structured or batch")
        return cls(pairs["mode"], pairs["to"], consent == "1")

"""The sink of a SOAP subscriber, written as one URL so that it is an address like any other.

    soap:?to=https%3A%2F%2Fexample.org%2Fsink&soap=1.2&eventing=2011&wrap=1&header=…&end=…&end-header=…

`header` is a reference parameter of the subscriber's endpoint, as XML. `end` and `end-header` are the
endpoint that is notified when the subscription ends, and `manager` is the subscription manager in that
message.
Subscribers may also send such a URL over REST.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, urlencode

from edn.errors import EdnError, InvalidSink
from edn.formats import xml
from edn.formats.soap import addressing, envelope, eventing
from edn.formats.soap.addressing import Addressing, Endpoint
from edn.formats.soap.envelope import Version
from edn.formats.soap.eventing import Vocabulary

SCHEME = "soap"
MOST_HEADERS = 8
_SINGLE = frozenset({"to", "soap", "eventing", "addressing", "wrap", "end", "manager"})
_EDITIONS = {"2005": addressing.WSA_2005, "2004": addressing.WSA_2004}
_NAMES = {edition.namespace: name for name, edition in _EDITIONS.items()}


@dataclass(frozen=True, slots=True)
class SoapAddress:
    sink: Endpoint
    version: Version = envelope.SOAP_12
    vocabulary: Vocabulary = eventing.WSE_2011
    addressing: Addressing = addressing.WSA_2005
    #: several events in one message
    wrapped: bool = False
    #: endpoint that is notified when the subscription ends
    end: Endpoint | None = None
    #: subscription manager in the notification of the end
    manager: str = ""

    def url(self) -> str:
        """Returns the URL; equal sinks have equal URLs."""
        pairs = [
            ("to", self.sink.address),
            ("soap", self.version.name),
            ("eventing", self.vocabulary.name),
            ("addressing", _NAMES[self.addressing.namespace]),
        ]
        if self.wrapped:
            pairs.append(("wrap", "1"))
        pairs += [("header", one) for one in self.sink.parameters]
        if self.end is not None:
            pairs.append(("end", self.end.address))
            pairs += [("end-header", one) for one in self.end.parameters]
        if self.manager:
            pairs.append(("manager", self.manager))
        return f"{SCHEME}:?{urlencode(pairs)}"

    def ending(self) -> Self | None:
        """Returns the endpoint of the end as a sink, or None."""
        if self.end is None:
            return None
        return type(self)(self.end, self.version, self.vocabulary, self.addressing, manager=self.manager)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parses a URL; raises `InvalidSink`."""
        scheme, _, rest = url.partition(":")
        if scheme != SCHEME or not rest.startswith("?"):
            raise _invalid("it must begin with soap:?to=")
        try:
            pairs = parse_qsl(rest[1:], strict_parsing=True, max_num_fields=32)
        except ValueError as error:
            raise _invalid(str(error)) from None
        single: dict[str, str] = {}
        many: dict[str, list[str]] = {"header": [], "end-header": []}
        for name, value in pairs:
            if name in many:
                many[name].append(_element(value))
            elif name in single or name not in _SINGLE:
                raise _invalid(f"{name[:40]!r} is unknown or repeated")
            else:
                single[name] = value
        if "to" not in single:
            raise _invalid("to= must name the endpoint")
        if len(many["header"]) + len(many["end-header"]) > MOST_HEADERS:
            raise _invalid(f"it must have at most {MOST_HEADERS} headers")
        try:
            return cls(
                Endpoint(single["to"], tuple(many["header"])),
                envelope.VERSIONS[single.get("soap", "1.2")],
                eventing.VOCABULARIES[single.get("eventing", "2011")],
                _EDITIONS[single.get("addressing", "2005")],
                {"0": False, "1": True}[single.get("wrap", "0")],
                Endpoint(single["end"], tuple(many["end-header"])) if "end" in single else None,
                single.get("manager", ""),
            )
        except KeyError as error:
            raise _invalid(
                "it must have soap=1.1 or 1.2, eventing=2004 or 2011, addressing=2004 or 2005, wrap=0 or 1, "
                f"got {error}"
            ) from None


def _element(text: str) -> str:
    try:
        return addressing.canonical(xml.fragment(text))
    except EdnError as error:
        raise _invalid(f"a header must be an XML element: {error.detail}") from None


def _invalid(reason: str) -> InvalidSink:
    return InvalidSink(f"the SOAP sink's URL is invalid: {reason}")

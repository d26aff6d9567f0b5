"""Operations of the SOAP interface: requests, replies, and the table from elements to operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dispatcher.auth.caller import Caller, Need
from edn.formats.soap.addressing import Headers
from edn.formats.soap.envelope import Envelope
from edn.formats.xml import Element


@dataclass(frozen=True, slots=True)
class Request:
    envelope: Envelope
    headers: Headers
    #: the one element of the body
    payload: Element
    #: where this door is, as the client reaches it
    url: str
    #: the topic that the door's URL names, if it does
    topic: str | None
    caller: Caller


@dataclass(frozen=True, slots=True)
class Reply:
    #: value of wsa:Action
    action: str
    payload: Element | None


@dataclass(frozen=True, slots=True)
class Operation:
    run: Callable[[Request], Awaitable[Reply]]
    #: wsa:Action of the request
    action: str
    #: what its caller must have
    need: Need
    #: it changes topics or subscriptions, so where there are several dispatchers the leader carries it out
    changes: bool = False


#: by the element of the body
Table = dict[str, Operation]

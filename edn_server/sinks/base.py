"""Declares sinks, and finds the sink of a URL's scheme.

http, https   `http`: a POST
mailto        `mail`: a message to the relay that the settings name
cloudevents   `cloudevents`: CloudEvents, in the mode that the address names
soap          `soap`: SOAP messages to the endpoint that the address names
others        entry points of the group `edn.sinks`: the name is the scheme, the object is called with the
              server's settings and gives a `Sink`; its attribute `check` is asked about each new address
              (see `edn.http.sink_policy`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from edn.http.sink_policy import extension
from edn.runtime.ownership import owned
from edn_server.config import Settings

#: bytes of a sink's answer that are kept
ANSWER_BYTES = 512


@dataclass(slots=True)
class Message:
    """One attempt: everything that a sink needs."""

    url: str
    #: the same at every attempt, and never used for another message
    webhook_id: str
    #: seconds since 1970: when this attempt is made
    timestamp: int
    body: bytes
    #: makes the value of `webhook-signature` of a webhook-id and a body; None if the address has no secret
    sign: Callable[[str, bytes], str] | None = field(default=None, repr=False)
    #: notifications in the body
    events: int = 1
    #: the trace context that they share (`edn.formats.trace_context`); empty if they share none
    trace: str = ""
    content_type: str = "application/json"
    #: further headers of the request
    headers: tuple[tuple[str, str], ...] = ()
    #: tenant of the address, for limits per tenant; empty is the operator
    tenant: str = ""

    @property
    def signature(self) -> str | None:
        """The value of `webhook-signature`; None if the address has no secret."""
        return None if self.sign is None else self.sign(self.webhook_id, self.body)


@dataclass(slots=True)
class Answer:
    """The result of an attempt; a failure is an answer, too."""

    #: as in HTTP, whatever the sink speaks: 2xx is taken, 410 is "no more"; None when there was no answer
    status: int | None
    retry_after: str | None = None
    #: what went wrong, for the log and the subscriber
    reason: str | None = None
    #: the beginning of what the sink answered
    text: str = field(default="", repr=False)
    #: no later attempt will do
    permanent: bool = False
    #: nothing is wrong: it goes on after so many seconds
    pause: float = 0.0
    #: the sink's answer in headers, if it was asked for its consent (`consent`)
    allowed: Mapping[str, str] = field(default_factory=dict)


class Sink(Protocol):
    async def send(self, message: Message) -> Answer:
        """One attempt; raises nothing."""

    async def close(self) -> None:
        """Nothing is sent any more."""


@owned("loop")
class Sinks:
    """Sinks by scheme, made when they are needed first."""

    def __init__(self, settings: Settings, makers: dict[str, Callable[[Settings], Sink]]) -> None:
        self._settings = settings
        self._makers = makers
        self._made: dict[Callable[[Settings], Sink], Sink] = {}

    async def send(self, message: Message) -> Answer:
        scheme = message.url.partition(":")[0].lower()
        maker = self._makers.get(scheme) or extension(scheme)
        if maker is None:
            return Answer(None, reason=f'this server has no sink for "{scheme}:" addresses')
        sink = self._made.get(maker)
        if sink is None:
            sink = self._made[maker] = maker(self._settings)
        try:
            return await sink.send(message)
        except Exception as error:  # a sink of somebody else shall not stop a courier
            return Answer(None, reason=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        for sink in self._made.values():
            await sink.close()
        self._made.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

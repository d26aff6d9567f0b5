"""Declares sinks, and finds the sink of a URL's scheme.

http, https   `http`: a POST
mailto        `mail`: a message through the relay in the settings
cloudevents   `cloudevents`: CloudEvents in the mode of the URL
soap          `soap`: SOAP messages to the endpoint in the URL
amqp, amqps, mqtt, mqtts, nats, tls
              `broker`: a message to the broker in the URL
others        entry points of the group `edn.sinks`: the name is the scheme; the object takes the server's
              settings and returns a `Sink`; its attribute `check` validates URLs of new subscriptions (see
              `edn.http.sink_policy`)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from edn.http.sink_policy import extension
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.sinks.profile import Profile

#: bytes of a sink's answer that are recorded
ANSWER_BYTES = 512


@dataclass(slots=True)
class Message:
    """One attempt: everything that a sink needs."""

    url: str
    #: the same in every attempt, and unique to this message
    webhook_id: str
    #: seconds since 1970: time of this attempt
    timestamp: int
    body: bytes
    #: makes the value of `webhook-signature` of a webhook-id and a body; None if the address has no secret
    sign: Callable[[str, bytes], str] | None = field(default=None, repr=False)
    #: notifications in the body
    events: int = 1
    #: trace context that all notifications share (`edn.formats.trace_context`); empty if they share none
    trace: str = ""
    content_type: str = "application/json"
    #: further headers of the request
    headers: tuple[tuple[str, str], ...] = ()
    #: tenant of the address, for limits per tenant; empty is the operator
    tenant: str = ""
    #: settings of the sink; None: those of the server
    profile: Profile | None = None

    @property
    def signature(self) -> str | None:
        """The value of `webhook-signature`; None if the address has no secret."""
        return None if self.sign is None else self.sign(self.webhook_id, self.body)


@dataclass(slots=True)
class Answer:
    """The result of an attempt, also of a failed one."""

    #: as in HTTP for every kind of sink: 2xx is accepted, 410 is gone; None without an answer
    status: int | None
    retry_after: str | None = None
    #: reason of a failure, for the log and the subscriber
    reason: str | None = None
    #: beginning of the answer's body
    text: str = field(default="", repr=False)
    #: whether no later attempt can succeed
    permanent: bool = False
    #: seconds after which the sink accepts more; not a failure
    pause: float = 0.0
    #: headers of the answer to a consent request (`consent`)
    allowed: Mapping[str, str] = field(default_factory=dict)


class Sink(Protocol):
    async def send(self, message: Message) -> Answer:
        """Make one attempt; raises nothing."""

    async def close(self) -> None:
        """Free resources; nothing is sent afterwards."""


class ImmediateSink(Sink):
    """A sink that can often send without a task."""

    @abstractmethod
    def begin(self, message: Message, on_answer: Callable[[Answer | None], None]) -> bool:
        """Make one attempt at once, if possible; otherwise return False.

        `on_answer` is called later, with None if the attempt must be repeated by `send`.
        """


@owned("loop")
class Sinks:
    """Sinks by scheme, created on first use."""

    def __init__(self, settings: Settings, makers: dict[str, Callable[[Settings], Sink]]) -> None:
        self._settings = settings
        self._makers = makers
        self._made: dict[Callable[[Settings], Sink], Sink] = {}

    def begin(self, message: Message, on_answer: Callable[[Answer | None], None]) -> bool:
        """Send at once if the sink can (`ImmediateSink.begin`)."""
        sink = self._sink(message.url.partition(":")[0].lower())
        return isinstance(sink, ImmediateSink) and sink.begin(message, on_answer)

    async def send(self, message: Message) -> Answer:
        scheme = message.url.partition(":")[0].lower()
        sink = self._sink(scheme)
        if sink is None:
            return Answer(None, reason=f'this server has no sink for "{scheme}:" addresses')
        try:
            return await sink.send(message)
        except Exception as error:  # an extension must not stop a worker
            return Answer(None, reason=f"{type(error).__name__}: {error}")

    def _sink(self, scheme: str) -> Sink | None:
        maker = self._makers.get(scheme) or extension(scheme)
        if maker is None:
            return None
        sink = self._made.get(maker)
        if sink is None:
            sink = self._made[maker] = maker(self._settings)
        return sink

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

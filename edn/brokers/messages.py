"""What is published to brokers and received from them, and the interfaces of both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from edn.formats.broker_url import BrokerUrl


class BrokerFailed(Exception):
    """A broker refused something or cannot be reached; the message says why.

    `refused`: the broker has answered, so the connection is good. `permanent`: the same message cannot
    succeed later.
    """

    def __init__(self, reason: str, *, refused: bool = False, permanent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_refused = refused or permanent
        self.is_permanent = permanent


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to a broker."""

    #: the same in every attempt: the broker or its consumers recognize a repetition by it
    id: str
    body: bytes
    content_type: str
    #: seconds since 1970
    timestamp: int
    #: headers or properties besides the id; names in lower case
    headers: tuple[tuple[str, str], ...] = ()
    #: context attributes of a CloudEvent in binary mode, without a prefix
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Incoming:
    """One message of a broker."""

    body: bytes
    #: given by its publisher, or by the broker if it is unique there; None if there is none
    id: str | None
    #: the library's own message, to acknowledge it
    handle: Any = field(repr=False)


class Publisher(Protocol):
    """An open connection of one broker; its addresses share it."""

    @property
    def is_open(self) -> bool: ...

    async def publish(self, url: BrokerUrl, message: Outgoing, seconds: float) -> None:
        """Returns once the broker has confirmed the message; raises `BrokerFailed`."""

    async def close(self) -> None: ...


class Consumer(Protocol):
    """An open consumer of one queue, filter or stream."""

    #: messages without acknowledgements (MQTT's QoS 0) that did not fit into the prefetch limit
    dropped: int

    async def receive(self, most: int, seconds: float) -> list[Incoming]:
        """Returns messages, in order; none if none came in time. Raises `BrokerFailed` if it is closed."""

    async def acknowledge(self, messages: Sequence[Incoming]) -> None:
        """Acknowledges all messages that were received up to the last of these; raises `BrokerFailed`."""

    async def hold(self, messages: Sequence[Incoming]) -> None:
        """Keeps the broker from delivering messages again that are not acknowledged yet."""

    async def close(self) -> None: ...

"""Clients of the simulated service: objects of interest publish, interested parties subscribe.

An object executes m sequences of one advertise, n publishes and one unadvertise. A party executes p
sequences of one subscribe, q notifications to wait for, and one unsubscribe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from evaluation.siena.kernel import Message, Process
from evaluation.siena.poset import Filtering
from evaluation.siena.trace import Kind


@dataclass(frozen=True, slots=True)
class Notification:
    id: int
    #: what filters are matched with
    values: Any


class AnyEvent:
    """The only filter of the published simulations: all events are of one kind."""

    def covers(self, other: object) -> bool:
        return True

    def overlaps(self, other: object) -> bool:
        return True

    def matches(self, values: object) -> bool:
        return True


ANY_EVENT = AnyEvent()


class Client(Process):
    """A client of one server. Tests and drawings use it directly."""

    #: numbers of notifications, per simulation
    def __init__(self, server: Process, numbers: count[int]) -> None:
        self.server = server
        self._numbers = numbers
        self.received: list[int] = []

    def request(self, kind: Kind, content: Any) -> None:
        """Sends a request to the server as a new service."""
        service = self.simulator.next_service()
        self.simulator.trace.requests[kind] += 1
        self.simulator.send(Message(kind=kind, content=content, service=service), self, self.server)

    def subscribe(self, filter: Filtering) -> None:
        self.request("subscription", filter)

    def unsubscribe(self, filter: Filtering) -> None:
        self.request("unsubscription", filter)

    def advertise(self, filter: Filtering) -> None:
        self.request("advertisement", filter)

    def unadvertise(self, filter: Filtering) -> None:
        self.request("unadvertisement", filter)

    def publish(self, values: Any) -> int:
        number = next(self._numbers)
        self.request("notification", Notification(number, values))
        return number

    def process(self, message: Message, sender: Process) -> None:
        self.simulator.trace.deliveries[message.content.id, self.id] += 1
        self.received.append(message.content.id)


class ObjectOfInterest(Client):
    def __init__(
        self,
        server: Process,
        numbers: count[int],
        *,
        cycles: int,
        delays: Sequence[float],
        pauses: bool = False,
    ) -> None:
        """`delays` are those before each publication of all cycles.

        With `pauses`, the object stays silent between two cycles for as long as before the next publication.
        """
        super().__init__(server, numbers)
        self._cycle = len(delays) // cycles
        self._delays = delays
        self._published = 0
        self._pauses = pauses
        self._is_pausing = False

    def initialize(self) -> None:
        self.advertise(ANY_EVENT)
        self.simulator.wait(self, self._delays[0])

    def timeout(self) -> None:
        if self._is_pausing:
            self._is_pausing = False
            self.advertise(ANY_EVENT)
            self.simulator.wait(self, self._delays[self._published])
            return
        self.publish(None)
        self._published += 1
        is_last = self._published == len(self._delays)
        if self._published % self._cycle == 0:
            self.unadvertise(ANY_EVENT)
            self._is_pausing = self._pauses and not is_last
            if not is_last and not self._pauses:
                self.advertise(ANY_EVENT)
        if not is_last:
            self.simulator.wait(self, self._delays[self._published])


class InterestedParty(Client):
    def __init__(
        self,
        server: Process,
        numbers: count[int],
        *,
        cycles: int,
        notifications: int,
        start: float,
        on_finish: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(server, numbers)
        self._left = cycles
        self._wanted = notifications
        self._missing = notifications
        self._start = start
        self._on_finish = on_finish
        self.is_waiting = False

    def initialize(self) -> None:
        self.simulator.wait(self, self._start)

    def timeout(self) -> None:
        self.is_waiting = True
        self.subscribe(ANY_EVENT)

    def process(self, message: Message, sender: Process) -> None:
        super().process(message, sender)
        if not self.is_waiting:
            return
        self._missing -= 1
        if self._missing:
            return
        self.unsubscribe(ANY_EVENT)
        self._left -= 1
        self._missing = self._wanted
        if self._left:
            self.subscribe(ANY_EVENT)
        else:
            self.is_waiting = False
            self._on_finish()

    def end(self) -> None:
        """Cancels what the party still waits for, at the end of a run."""
        if self.is_waiting:
            self.is_waiting = False
            self.unsubscribe(ANY_EVENT)

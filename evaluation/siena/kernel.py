"""A sequential discrete-event simulator of processes that exchange messages between sites.

The simulator holds a list of actions ordered by time. It takes the first one, moves its clock to the
action's time and passes control to the action's process. Actions at the same time run in the order in which
they were scheduled. A message takes the transmission time of the network between two sites, and none inside
a site, so two messages over one link never overtake each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from evaluation.siena.network import Network
from evaluation.siena.trace import Kind, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    kind: Kind
    #: a filter, an advertisement or a notification
    content: Any
    #: the client request that this message follows from; 0 for none
    service: int = 0
    #: in graphs with cycles, the site of the server that the request entered at, and the way since then
    origin: int = -1
    distance: float = 0.0
    #: bits; all messages of the published simulations have one length
    length: float = 0.0


class Process:
    """A simulated process at a site. Subclasses override `initialize`, `process`, `timeout`, `terminate`."""

    id: int = -1
    site: int = -1
    simulator: Simulator

    def initialize(self) -> None:
        """Runs when the process was created."""

    def process(self, message: Message, sender: Process) -> None:
        """Handles a message."""

    def timeout(self) -> None:
        """Runs when a wait has expired."""

    def terminate(self) -> None:
        """Runs when the process has left."""


class Simulator:
    def __init__(self, network: Network, *, keep_records: bool = False) -> None:
        self.network = network
        self.clock = 0.0
        self.trace = Trace(network.sites, keep_records=keep_records)
        self._actions: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._processes = count()
        self._services = count(1)
        self._ended: set[int] = set()

    def create_process_at(self, process: Process, site: int) -> None:
        """Places a process at a site and initializes it at the present time."""
        process.id, process.site, process.simulator = next(self._processes), site, self
        self._schedule(0.0, process.initialize)

    def create_process(self, process: Process, creator: Process) -> None:
        """Places a process at the site of its creator."""
        self.create_process_at(process, creator.site)

    def send(self, message: Message, sender: Process, receiver: Process) -> None:
        """Delivers a message after the transmission time between the two sites."""
        cost, delay = self.network.transmission(sender.site, receiver.site, message.length)
        self.trace.add(message.kind, message.service, sender, receiver, self.clock, self.clock + delay, cost)
        self._schedule(delay, lambda: self._deliver(message, sender, receiver))

    def wait(self, process: Process, delay: float) -> None:
        """Calls `timeout` of a process after a delay."""
        self._schedule(delay, lambda: None if process.id in self._ended else process.timeout())

    def exit(self, process: Process) -> None:
        """Ends a process: it gets neither messages nor timeouts any more."""
        self._schedule(0.0, lambda: self._end(process))

    def next_service(self) -> int:
        """Numbers a request of a client."""
        return next(self._services)

    def run(self, until: float = float("inf")) -> None:
        """Executes actions until none is left, or until a time."""
        while self._actions and self._actions[0][0] <= until:
            self.clock, _, action = heapq.heappop(self._actions)
            action()

    def _schedule(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._actions, (self.clock + delay, next(self._numbers), action))

    def _deliver(self, message: Message, sender: Process, receiver: Process) -> None:
        if receiver.id not in self._ended:
            receiver.process(message, sender)

    def _end(self, process: Process) -> None:
        process.terminate()
        self._ended.add(process.id)

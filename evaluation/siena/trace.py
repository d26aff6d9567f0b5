"""The trace of a simulation: one record per message, and sums in total, per site, per link and per service.

The cost of a site is that of all messages it sends or receives. The cost of a service is that of all
messages that follow from one request of a client; its delay lasts from the first departure to the last
arrival. Messages inside a site cost nothing, but are recorded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Literal, NamedTuple, Protocol

#: the type of a trace record
Kind = Literal[
    "subscription", "unsubscription", "advertisement", "unadvertisement", "notification", "report", "setup"
]


class Party(Protocol):
    """Sender or receiver of a message."""

    id: int
    site: int


class TraceRecord(NamedTuple):
    type: Kind
    message: int
    service: int
    source: int
    source_site: int
    destination: int
    destination_site: int
    departure: float
    arrival: float
    cost: int


class Trace:
    def __init__(self, sites: int, *, keep_records: bool = False) -> None:
        self.records: list[TraceRecord] = []
        self._keep_records = keep_records
        self._messages = 0
        #: by type: cost, and messages between sites
        self.cost: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        #: requests of clients by type
        self.requests: Counter[str] = Counter()
        self.site_cost = [0] * sites
        #: by pair of sites, the smaller one first
        self.link_cost: Counter[tuple[int, int]] = Counter()
        self.service_cost: Counter[int] = Counter()
        self._service_time: dict[int, tuple[float, float]] = {}
        #: (notification, client) → copies
        self.deliveries: defaultdict[tuple[int, int], int] = defaultdict(int)

    @property
    def total_cost(self) -> int:
        return sum(self.cost.values())

    @property
    def crossing_services(self) -> int:
        """Number of services with messages between sites."""
        return len(self.service_cost)

    def add(
        self,
        kind: Kind,
        service: int,
        sender: Party,
        receiver: Party,
        departure: float,
        arrival: float,
        cost: int,
    ) -> None:
        self._messages += 1
        if self._keep_records:
            self.records.append(
                TraceRecord(
                    kind,
                    self._messages,
                    service,
                    sender.id,
                    sender.site,
                    receiver.id,
                    receiver.site,
                    departure,
                    arrival,
                    cost,
                )
            )
        first, last = self._service_time.get(service, (departure, arrival))
        self._service_time[service] = min(first, departure), max(last, arrival)
        if sender.site == receiver.site:
            return
        self.cost[kind] += cost
        self.messages[kind] += 1
        self.site_cost[sender.site] += cost
        self.site_cost[receiver.site] += cost
        low, high = sorted((sender.site, receiver.site))
        self.link_cost[low, high] += cost
        self.service_cost[service] += cost

    def delay(self, service: int) -> float:
        """Time from the first departure to the last arrival of a service's messages."""
        first, last = self._service_time[service]
        return last - first

"""Chooses the server of a new subscription, with one placement policy per topic.

Theory of operation ------------------- A policy learns every choice of this dispatcher at once. It learns a
server's content from a summary when that server registers, because nothing is known of it after a restart,
and when many subscriptions have ended there. The next snapshot of such a server, cut to a few rectangles,
replaces everything known of it; subscriptions placed between request and answer are learned again.

The cuts of all snapshots are also sent to the servers, which suggest a server for subscriptions that clients
create there. All of this is advisory: a policy that knows too little costs traffic, never an event. Bindings
are not advisory (see `bindings`): other servers are no candidates.

`Server.subscriptions` is the load: subscriptions in the directory and those being stored.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dispatcher.config import Settings
from dispatcher.servers.registry import Server, ServerRegistry
from dispatcher.store.topic_rows import Binding
from edn import protocol
from edn.arrays import Floats
from edn.errors import InvalidInput, Unavailable
from edn.model.rect import Rects
from edn.runtime.ownership import owned
from edn.summary import Summary
from partitioning import online
from partitioning.online import Limits, Placement, new_placement

#: limit of the coordinates of a location
MOST_COORDINATES = 8
#: a server's content is learned again when more subscriptions than this, and than this part of its load,
#: ended
_ENDED, _ENDED_SHARE = 50, 40
#: seconds for which learning may block the event loop
SLICE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Candidate:
    """A subscription that needs a server."""

    #: uid
    topic: int
    rects: Rects
    #: of its subscriber, or None
    location: Sequence[float] | None = None
    #: choice of the server where it was created
    suggested: str | None = None
    #: restricts the servers; None: all are allowed
    binding: Binding | None = None


@dataclass(frozen=True, slots=True)
class _Cut:
    """A server's subscriptions to one topic, in a few rectangles."""

    version: int
    lo: Floats
    hi: Floats


@owned("loop")
class Placer:
    def __init__(self, settings: Settings, registry: ServerRegistry) -> None:
        self._settings = settings
        self._registry = registry
        self._limits = Limits(threshold=settings.load_threshold, factor=settings.load_factor)
        self._policies: dict[int, Placement] = {}
        #: server → topic → cut of its last snapshot
        self._cuts: dict[str, dict[int, _Cut]] = {}
        self._version = 0
        #: servers whose next snapshot the policies learn → subscriptions placed there meanwhile
        self._awaited: dict[str, list[Candidate]] = {}
        #: server → subscriptions that ended since the policies learned its content
        self._ended: dict[str, int] = {}
        new_placement(settings.placement)  # fails now if the name is wrong

    # -- choice -----------------------------------------------------------------------------------------

    def check_location(self, location: Sequence[float]) -> None:
        """Raise `InvalidInput` unless a subscriber's location has as many coordinates as the servers'."""
        wanted = {len(server.location) for server in self._registry if server.location}
        if wanted and len(location) not in wanted:
            raise InvalidInput(
                f"location must have {min(wanted)} coordinates like the servers' locations, "
                f"got {len(location)}"
            )

    def place(self, candidates: Sequence[Candidate]) -> list[str]:
        """Choose a server for each candidate, and add it to that server's load until `remove_load`."""
        loads = self._loads()
        chosen = []
        for candidate in candidates:
            server = self._choose(candidate, loads)
            loads[server] += 1
            if server in self._awaited:
                self._awaited[server].append(candidate)
            chosen.append(server)
        for server in chosen:
            self.add_load(server, 1)
        return chosen

    def choose(self, candidate: Candidate) -> str:
        """Choose a server for a migration; `move` adds the load."""
        return self._choose(candidate, self._loads())

    def _loads(self) -> dict[str, int]:
        loads = {server.id: server.subscriptions for server in self._registry.hosts()}
        if not loads:
            raise Unavailable("no server is ready to host subscriptions", retry_after=2)
        return loads

    def _choose(self, candidate: Candidate, loads: Mapping[str, int]) -> str:
        if candidate.binding is not None and candidate.binding.servers is not None:
            loads = {name: load for name, load in loads.items() if name in candidate.binding.servers}
            if not loads:
                allowed = ", ".join(candidate.binding.servers)
                raise Unavailable(
                    f'route "{candidate.binding.name}" binds these subscriptions to {allowed}, '
                    "and none of these servers is ready to host subscriptions",
                    retry_after=2,
                )
        policy, rects = self._policy(candidate.topic), candidate.rects
        suggested = candidate.suggested
        if suggested is not None and suggested in self._limits.candidates(loads):
            _learn_placed(policy, suggested, candidate)
            return suggested
        if not rects.lo.size:  # it matches nothing, or the topic has no attributes
            return policy.place(loads)
        return policy.place(loads, rects.lo, rects.hi, location=candidate.location)

    def change(self, server: str, candidate: Candidate) -> None:
        """Learn the new filter of a subscription that stays on its server."""
        _learn_placed(self._policy(candidate.topic), server, candidate)

    def add_load(self, server: str, count: int) -> None:
        found = self._registry.get(server)
        if found is not None:
            found.subscriptions += count

    def remove_load(self, server: str, count: int = 1) -> None:
        """Remove subscriptions that ended or were never stored."""
        found = self._registry.get(server)
        if found is None:
            return
        found.subscriptions = max(0, found.subscriptions - count)
        self._ended[server] = self._ended.get(server, 0) + count
        if self._ended[server] > max(_ENDED, found.subscriptions // _ENDED_SHARE):
            self._awaited.setdefault(server, [])

    def move(self, source: str, destination: str, candidate: Candidate) -> None:
        """Transfer the load of a migrated subscription."""
        self.add_load(destination, 1)
        if destination in self._awaited:
            self._awaited[destination].append(candidate)
        _learn_placed(self._policy(candidate.topic), destination, candidate)
        self.remove_load(source)

    def forget_server(self, server: str) -> None:
        self._cuts.pop(server, None)
        self._awaited.pop(server, None)
        self._ended.pop(server, None)
        for policy in self._policies.values():
            policy.forget(server)

    def forget_topic(self, topic: int) -> None:
        self._policies.pop(topic, None)
        for cuts in self._cuts.values():
            cuts.pop(topic, None)

    # -- learning ---------------------------------------------------------------------------------------

    def register(self, server: Server, location: Sequence[float], distance: float) -> None:
        """Set a server's location, and learn its content from its next snapshot."""
        self._awaited.setdefault(server.id, [])
        if (tuple(location), distance) == (server.location, server.distance):
            return
        server.location, server.distance = tuple(location), distance
        # Locations are dimensions of the policies' space, so the policies start again from the snapshots.
        self._policies.clear()

    def check_registration(self, request: protocol.Register) -> None:
        """Raise `InvalidInput` unless the server's location fits those of the others."""
        if len(request.location) > MOST_COORDINATES or not np.isfinite(request.location).all():
            raise InvalidInput(
                f"server location must be at most {MOST_COORDINATES} finite coordinates, "
                f"got {list(request.location)[: MOST_COORDINATES + 1]}",
                pointer="/location",
            )
        if not 0 < request.distance < float("inf"):
            raise InvalidInput(
                f"server distance must be above 0 and finite, got {request.distance}", pointer="/distance"
            )
        for server in self._registry:
            if server.id == request.id or not (server.location and request.location):
                continue
            if len(server.location) != len(request.location):
                raise InvalidInput(
                    f"server location must have {len(server.location)} coordinates like that of "
                    f"{server.id}, got {len(request.location)}",
                    pointer="/location",
                )

    async def learn(self, server: str, summaries: Mapping[int, Summary]) -> None:
        """Learn an accepted snapshot, and yield to the event loop between slices of topics."""
        began = time.monotonic()

        async def rest() -> None:
            nonlocal began
            if time.monotonic() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = time.monotonic()

        bound = self._settings.routing_rectangles
        held = self._cuts.setdefault(server, {})
        self._version += 1
        version = self._version
        for topic in held.keys() | summaries.keys():
            summary = summaries.get(topic)
            lo, hi = summary.cut(bound) if summary and summary.count else (np.empty((0, 0)),) * 2
            known = held.get(topic)
            if summary is None and known is not None and not len(known.lo):
                del held[topic]  # the servers have got the empty cut
            elif known is None or not (np.array_equal(known.lo, lo) and np.array_equal(known.hi, hi)):
                held[topic] = _Cut(version, lo, hi)
            await rest()
        if server not in self._awaited:
            return
        self._ended.pop(server, None)
        for topic, policy in list(self._policies.items()):
            cut = held.get(topic)
            if cut is None or not len(cut.lo):
                policy.forget(server)
            else:
                policy.summarise(server, cut.lo, cut.hi)
            await rest()
        for candidate in self._awaited.pop(server, []):
            _learn_placed(self._policy(candidate.topic), server, candidate)

    def _policy(self, topic: int) -> Placement:
        policy = self._policies.get(topic)
        if policy is None:
            seed = self._settings.placement_seed
            policy = self._policies[topic] = new_placement(
                self._settings.placement,
                settings=online.Settings(
                    limits=self._limits,
                    bound=self._settings.routing_rectangles,
                    spread=self._settings.placement_spread,
                    distances={server.id: server.distance for server in self._registry},
                    affinity={server.id: server.location for server in self._registry if server.location},
                ),
                rng=None if seed is None else random.Random(seed),
            )
            for name, cuts in self._cuts.items():
                if topic in cuts and len(cuts[topic].lo):
                    policy.summarise(name, cuts[topic].lo, cuts[topic].hi)
        return policy

    # -- hints for servers ------------------------------------------------------------------------------

    def hints(
        self, topics: Sequence[protocol.TopicInfo], *, incarnation: int, since: int
    ) -> protocol.RoutingSummaries:
        """Return the loads of all servers, and the cuts of these topics that are newer than `since`."""
        settings, wanted = self._settings, {topic.uid for topic in topics}
        return protocol.RoutingSummaries(
            incarnation=incarnation,
            version=self._version,
            rule=protocol.PlacementRule(
                settings.placement,
                settings.load_threshold,
                settings.load_factor,
                settings.routing_rectangles,
                settings.placement_spread,
            ),
            topics=list(topics),
            peers=[
                protocol.Host(server.id, server.subscriptions, list(server.location), server.distance)
                for server in self._registry.hosts()
            ],
            boxes=[
                protocol.ServerRects(
                    topic,
                    name,
                    protocol.points_bytes(cut.lo),
                    protocol.points_bytes(cut.hi),
                    cut.lo.shape[1],
                )
                for name, cuts in self._cuts.items()
                for topic, cut in cuts.items()
                # Servers suggest only for the operator's topics; `topics` lacks those of tenants.
                if cut.version > since and topic in wanted
            ],
        )


def _learn_placed(policy: Placement, server: str, candidate: Candidate) -> None:
    if candidate.rects.lo.size:
        policy.placed(server, candidate.rects.lo, candidate.rects.hi, location=candidate.location)

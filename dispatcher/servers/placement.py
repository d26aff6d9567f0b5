"""Where a new subscription goes: one placement policy a topic, kept up with what the servers host.

Theory of operation
-------------------
A policy is told of every choice as it is made, so it needs no summary to know what this dispatcher placed.
It does need one of a server that registers, because after a restart nothing is known of it, and of one
where many subscriptions have ended: the next snapshot of such a server is cut to a few rectangles and takes
the place of what was known. What is placed there between the question and the answer is told again.

All snapshots, cut likewise, are kept for the servers, which choose from them for the subscriptions that
clients bring there. All of this is advisory: a policy that knows too little costs traffic, never an event.
What is not advisory are bindings (see `bindings`): a server that they do not name is none to choose from.

Loads are counted in `Server.subscriptions`: what the directory holds and what is being stored. Event loop
only.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dispatcher.config import Settings
from dispatcher.servers.registry import Server, ServerRegistry
from dispatcher.store.topic_rows import Binding
from edn import protocol
from edn.arrays import Floats
from edn.errors import InvalidInput, Unavailable
from edn.model.rect import Rects
from edn.summary import Summary
from partitioning import online
from partitioning.online import Limits, Placement, new_placement

#: coordinates that a location may have
MOST_COORDINATES = 8
#: a server is looked at anew when more subscriptions than these, and than this part of its load, have ended
_ENDED, _ENDED_SHARE = 50, 40


@dataclass(frozen=True, slots=True)
class Candidate:
    """A subscription that wants a server."""

    #: uid
    topic: int
    rects: Rects
    #: of its subscriber, or None
    location: Sequence[float] | None = None
    #: what the server that was asked first would choose
    suggested: str | None = None
    #: says which servers may host it; None: any may
    binding: Binding | None = None


#: seconds for which learning from a snapshot may hold up the event loop
SLICE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class _Cut:
    """A server's subscriptions of one topic in few rectangles."""

    version: int
    lo: Floats
    hi: Floats


class Placing:
    def __init__(self, settings: Settings, members: ServerRegistry) -> None:
        self._settings = settings
        self._members = members
        self._limits = Limits(threshold=settings.load_threshold, factor=settings.load_factor)
        self._policies: dict[int, Placement] = {}
        #: server → topic → the cut of its last snapshot
        self._cuts: dict[str, dict[int, _Cut]] = {}
        self._version = 0
        #: servers whose next snapshot the policies learn from → what was placed there meanwhile
        self._awaited: dict[str, list[Candidate]] = {}
        #: subscriptions that ended on a server since the policies learnt of it
        self._ended: dict[str, int] = {}
        new_placement(settings.placement)  # so that a wrong name fails now

    # -- choosing ---------------------------------------------------------------------------------------

    def check_location(self, location: Sequence[float]) -> None:
        """Raise unless subscribers can be there: as many coordinates as the servers have."""
        wanted = {len(member.location) for member in self._members if member.location}
        if wanted and len(location) not in wanted:
            raise InvalidInput(f"a location has {min(wanted)} coordinates here, as the servers' have")

    def place(self, candidates: Sequence[Candidate]) -> list[str]:
        """A server for each, one after the other; each is counted there until `ended`."""
        ready = {member.id: member for member in self._members.hosts()}
        if not ready:
            raise Unavailable("no server is ready to host subscriptions", retry_after=2)
        loads = {name: member.subscriptions for name, member in ready.items()}
        chosen = []
        for candidate in candidates:
            server = self._choose(candidate, loads)
            loads[server] += 1
            if server in self._awaited:
                self._awaited[server].append(candidate)
            chosen.append(server)
        for server in chosen:
            ready[server].subscriptions += 1
        return chosen

    def choose(self, candidate: Candidate) -> str:
        """A server for one that is to be moved; it is counted there when it has."""
        loads = {member.id: member.subscriptions for member in self._members.hosts()}
        if not loads:
            raise Unavailable("no server is ready to host subscriptions", retry_after=2)
        return self._choose(candidate, loads)

    def _choose(self, candidate: Candidate, loads: Mapping[str, int]) -> str:
        if candidate.binding is not None and candidate.binding.servers is not None:
            loads = {name: load for name, load in loads.items() if name in candidate.binding.servers}
            if not loads:
                allowed = ", ".join(candidate.binding.servers)
                raise Unavailable(
                    f'subscriptions to it are bound by the route "{candidate.binding.name}" to {allowed}, '
                    "and none of these takes any at this moment",
                    retry_after=2,
                )
        policy, rects = self._policy(candidate.topic), candidate.rects
        suggested = candidate.suggested
        if suggested is not None and suggested in self._limits.candidates(loads):
            _tell(policy, suggested, candidate)
            return suggested
        if not rects.lo.size:  # nothing matches it, or the topic has no attributes: content says nothing
            return policy.place(loads)
        return policy.place(loads, rects.lo, rects.hi, location=candidate.location)

    def changed(self, server: str, candidate: Candidate) -> None:
        """A subscription has got another filter, and stays where it is."""
        _tell(self._policy(candidate.topic), server, candidate)

    def begun(self, server: str, count: int) -> None:
        """Another dispatcher has placed subscriptions there; its next snapshot tells what they are like."""
        member = self._members.get(server)
        if member is not None:
            member.subscriptions += count

    def ended(self, server: str, count: int = 1) -> None:
        """Subscriptions are no longer there, or never came to be."""
        member = self._members.get(server)
        if member is None:
            return
        member.subscriptions = max(0, member.subscriptions - count)
        self._ended[server] = self._ended.get(server, 0) + count
        if self._ended[server] > max(_ENDED, member.subscriptions // _ENDED_SHARE):
            self._await(server)

    def moved(self, source: str, destination: str, candidate: Candidate) -> None:
        """A subscription is on another server now."""
        self.begun(destination, 1)
        if destination in self._awaited:
            self._awaited[destination].append(candidate)
        _tell(self._policy(candidate.topic), destination, candidate)
        self.ended(source)

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

    def registered(self, member: Server, location: Sequence[float], distance: float) -> None:
        """A server is here, at this place; what it hosts will be known from its next snapshot."""
        self._await(member.id)
        if (tuple(location), distance) == (member.location, member.distance):
            return
        member.location, member.distance = tuple(location), distance
        # Locations are dimensions of the policies' space: they begin again, from the snapshots.
        self._policies.clear()

    def check_registration(self, request: protocol.Register) -> None:
        """Raise unless the server's place fits into the network."""
        if len(request.location) > MOST_COORDINATES or not np.isfinite(request.location).all():
            raise InvalidInput(
                f"server location: at most {MOST_COORDINATES} finite coordinates", pointer="/location"
            )
        if not 0 < request.distance < float("inf"):
            raise InvalidInput("server distance: above 0 and finite", pointer="/distance")
        for member in self._members:
            if member.id == request.id or not (member.location and request.location):
                continue
            if len(member.location) != len(request.location):
                raise InvalidInput(
                    f"server location: {len(request.location)} coordinates, but {member.id} has "
                    f"{len(member.location)}",
                    pointer="/location",
                )

    def summarised(self, server: str, summaries: Mapping[int, Summary]) -> None:
        """Learn from a snapshot of a server that was accepted."""
        for _ in self._summarised(server, summaries):
            pass

    async def summarised_in_slices(self, server: str, summaries: Mapping[int, Summary]) -> None:
        """Learn from a snapshot, with the event loop free after each slice of topics."""
        began = time.monotonic()
        for _ in self._summarised(server, summaries):
            if time.monotonic() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = time.monotonic()

    def _summarised(self, server: str, summaries: Mapping[int, Summary]) -> Iterator[None]:
        bound = self._settings.routing_rectangles
        held = self._cuts.setdefault(server, {})
        self._version += 1
        version = self._version
        for topic in held.keys() | summaries.keys():
            summary = summaries.get(topic)
            lo, hi = summary.cut(bound) if summary and summary.count else (np.empty((0, 0)),) * 2
            known = held.get(topic)
            if summary is None and known is not None and not len(known.lo):
                del held[topic]  # servers were told that nothing is there
            elif known is None or not (np.array_equal(known.lo, lo) and np.array_equal(known.hi, hi)):
                held[topic] = _Cut(version, lo, hi)
            yield
        if server not in self._awaited:
            return
        self._ended.pop(server, None)
        for topic, policy in list(self._policies.items()):
            cut = held.get(topic)
            if cut is None or not len(cut.lo):
                policy.forget(server)
            else:
                policy.summarise(server, cut.lo, cut.hi)
            yield
        for candidate in self._awaited.pop(server, []):
            _tell(self._policy(candidate.topic), server, candidate)

    def _await(self, server: str) -> None:
        self._awaited.setdefault(server, [])

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
                    distances={member.id: member.distance for member in self._members},
                    affinity={member.id: member.location for member in self._members if member.location},
                ),
                rng=None if seed is None else random.Random(seed),
            )
            for server, cuts in self._cuts.items():
                if topic in cuts and len(cuts[topic].lo):
                    policy.summarise(server, cuts[topic].lo, cuts[topic].hi)
        return policy

    # -- telling the servers ----------------------------------------------------------------------------

    def exchange(
        self, topics: Sequence[protocol.TopicInfo], *, incarnation: int, since: int
    ) -> protocol.RoutingSummaries:
        """What all servers host of these topics, in few rectangles each; only what is newer than `since`."""
        settings, told = self._settings, {topic.uid for topic in topics}
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
                protocol.Host(member.id, member.subscriptions, list(member.location), member.distance)
                for member in self._members.hosts()
            ],
            boxes=[
                protocol.ServerRects(
                    topic,
                    server,
                    protocol.points_bytes(cut.lo),
                    protocol.points_bytes(cut.hi),
                    cut.lo.shape[1],
                )
                for server, cuts in self._cuts.items()
                for topic, cut in cuts.items()
                # Servers choose for the operator's topics only; those of tenants would be sent in vain.
                if cut.version > since and topic in told
            ],
        )


def _tell(policy: Placement, server: str, candidate: Candidate) -> None:
    if candidate.rects.lo.size:
        policy.placed(server, candidate.rects.lo, candidate.rects.hi, location=candidate.location)

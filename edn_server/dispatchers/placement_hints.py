"""Suggests the server that should host a subscription, from summaries of all servers.

Every few seconds the dispatcher is asked for the routing summaries of all servers: a few rectangles a server
and topic, and how many subscriptions each has. They feed the network's placement policy here as they do
there, so that any server can choose for the clients that come to it; while none come, nothing is asked. The
choice is advisory: the dispatcher honours it while the chosen server is ready and below the limits. Where
content does not decide, nothing is suggested.

Event loop only, but for `candidates`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from edn import protocol
from edn.errors import EdnError
from edn.formats import strict_json
from edn.model.filter import Filter
from edn.model.rect import Rects
from edn.model.schema import Schema
from edn.runtime.ownership import owned
from edn_server.dispatchers.client import Dispatchers
from partitioning.online import Limits, Placement, Settings, new_placement

logger = structlog.get_logger()

#: nobody came for so long: nothing is learnt until somebody does
NOBODY_SECONDS = 60.0

_decoder = protocol.Decoder(protocol.RoutingSummaries)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A subscription that a client brought, as far as choosing a host needs to understand it."""

    #: uid
    topic: int
    rects: Rects
    location: list[float] | None


@owned("loop")
class PlacementHints:
    """`run` for as long as the server lives; `suggest` whenever a client comes."""

    def __init__(self, dispatchers: Dispatchers, seconds: float) -> None:
        self._dispatchers = dispatchers
        self._seconds = seconds
        #: set while clients come
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._came = time.monotonic()
        #: whose word it is: what one dispatcher has counted means nothing to another
        self._told_by = ""
        self._known: protocol.RoutingSummaries | None = None
        self._topics: dict[str, tuple[int, Schema]] = {}
        self._policies: dict[int, Placement] = {}
        #: topic → server → its rectangles
        self._boxes: dict[int, dict[str, protocol.ServerRects]] = {}
        self._loads: dict[str, int] = {}

    @property
    def servers(self) -> int:
        """How many there are, this one among them, as far as is known; asking keeps that fresh."""
        self._came = time.monotonic()
        self._wanted.set()
        return max(1, len(self._loads))

    # -- learning ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        failing = False
        while True:
            try:
                await self.refresh()
                failing = False
            except Exception as error:
                # Whatever it was: what is known stays in use, and the dispatcher may come back.
                if not failing:
                    logger.warning("no routing summaries", reason=str(error) or type(error).__name__)
                failing = True
            await asyncio.sleep(self._seconds)
            if time.monotonic() - self._came > NOBODY_SECONDS:
                self._wanted.clear()
                await self._wanted.wait()

    async def refresh(self) -> None:
        if self._told_by != self._dispatchers.current:
            self._known = None
        known = self._known
        asked = {"incarnation": known.incarnation, "since": known.version} if known else {}
        answer = await self._dispatchers.request("GET", "/internal/routing-summaries", params=asked)
        answer.raise_for_status()
        if known is not None and self._told_by != self._dispatchers.current:
            return  # another one answered, and not all of what it knows: it is asked again
        self._told_by = self._dispatchers.current
        self.learn(_decoder.decode(answer.content))

    def learn(self, told: protocol.RoutingSummaries) -> None:
        former = self._known
        self._known = told
        if former is None or former.incarnation != told.incarnation:
            self._boxes.clear()
        if former is None or former.incarnation != told.incarnation or _seats(former) != _seats(told):
            self._policies.clear()
        uids = {topic.uid for topic in told.topics}
        for gone in (self._boxes.keys() | self._policies.keys()) - uids:
            self._boxes.pop(gone, None)
            self._policies.pop(gone, None)
        schemas = dict(self._topics.values())
        self._topics = {
            topic.name: (topic.uid, _schema(topic, schemas.get(topic.uid))) for topic in told.topics
        }
        self._loads = {peer.id: peer.subscriptions for peer in told.peers}
        for boxes in told.boxes:
            if boxes.topic in uids:
                self._boxes.setdefault(boxes.topic, {})[boxes.server] = boxes
                if boxes.topic in self._policies:
                    _summarise(self._policies[boxes.topic], boxes)

    # -- choosing ---------------------------------------------------------------------------------------

    def candidates(self, body: bytes) -> list[Candidate | None]:
        """What a client wants to subscribe to, None where it cannot be understood: then the dispatcher says
        what is wrong with it. May run in another thread.
        """
        topics = self._topics
        try:
            given = strict_json.decode(body)
        except EdnError:
            return []
        return [_candidate(one, topics) for one in (given if isinstance(given, list) else [given])]

    def suggest(self, candidates: Sequence[Candidate | None]) -> list[str | None]:
        """A host for each of them; none while nothing is known."""
        self._came = time.monotonic()
        if not self._wanted.is_set():
            self._wanted.set()
            return []  # what is known may be old: the dispatcher chooses
        if self._known is None or not self._loads:
            return []
        return [None if one is None else self._choose(one) for one in candidates]

    def _choose(self, candidate: Candidate) -> str | None:
        """None where content says nothing here: the dispatcher may know newer things."""
        policy, rects = self._policy(candidate.topic), candidate.rects
        if not rects.lo.size:
            return None
        try:
            server = policy.suggest(self._loads, rects.lo, rects.hi, location=candidate.location)
        except EdnError:  # a location that does not fit: the dispatcher says so
            return None
        if server is not None:
            policy.placed(server, rects.lo, rects.hi, location=candidate.location)
            self._loads[server] += 1
        return server

    def _policy(self, topic: int) -> Placement:
        policy = self._policies.get(topic)
        if policy is None:
            assert self._known is not None
            rule, peers = self._known.rule, self._known.peers
            policy = self._policies[topic] = new_placement(
                rule.policy,
                settings=Settings(
                    limits=Limits(threshold=rule.threshold, factor=rule.factor),
                    bound=rule.bound,
                    spread=rule.spread,
                    distances={peer.id: peer.distance for peer in peers},
                    affinity={peer.id: peer.location for peer in peers if peer.location},
                ),
            )
            for boxes in self._boxes.get(topic, {}).values():
                _summarise(policy, boxes)
        return policy


def _seats(known: protocol.RoutingSummaries) -> Any:
    """What policies are made from: another rule, another server or another place means other policies."""
    return known.rule, [(peer.id, peer.location, peer.distance) for peer in known.peers]


def _schema(topic: protocol.TopicInfo, former: Schema | None) -> Schema:
    same = former is not None and former.to_wire() == topic.columns
    return former if same and former is not None else Schema.from_wire(topic.columns)


def _summarise(policy: Placement, boxes: protocol.ServerRects) -> None:
    if boxes.lo:
        lo, hi = protocol.points_array(boxes.lo, boxes.width), protocol.points_array(boxes.hi, boxes.width)
        policy.summarise(boxes.server, lo, hi)
    else:
        policy.forget(boxes.server)


def _candidate(given: Any, topics: dict[str, tuple[int, Schema]]) -> Candidate | None:
    if not isinstance(given, dict):
        return None
    topic, location = given.get("topic"), given.get("location")
    if not isinstance(topic, str) or topic not in topics:
        return None
    if location is not None and not _numbers(location):
        return None
    uid, schema = topics[topic]
    try:
        return Candidate(uid, Filter.parse(given.get("filter")).bind(schema).rects(), location)
    except EdnError:
        return None


def _numbers(given: Any) -> bool:
    return isinstance(given, list) and all(type(one) in (int, float) for one in given)

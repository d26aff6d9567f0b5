"""Suggests the server that should host a subscription, from summaries of all servers.

Every few seconds, while clients subscribe here, this server reads the routing summaries of all servers from
the dispatcher: a few rectangles per server and topic, and the number of subscriptions. They feed the same
placement policy as on the dispatcher. A suggestion is advisory: the dispatcher accepts it while that server
is ready and below the limits. If the content of a subscription does not decide, nothing is suggested.
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
from edn.runtime.ownership import any_thread, owned
from edn_server.dispatchers.client import Dispatchers
from partitioning.online import Limits, Placement, Settings, new_placement

logger = structlog.get_logger()

#: seconds without clients after which summaries are no longer read
IDLE_SECONDS = 60.0

_decoder = protocol.Decoder(protocol.RoutingSummaries)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The parts of a new subscription that placement needs."""

    #: uid of the topic
    topic: int
    rects: Rects
    location: list[float] | None


@owned("loop")
class PlacementHints:
    def __init__(self, dispatchers: Dispatchers, seconds: float) -> None:
        self._dispatchers = dispatchers
        self._seconds = seconds
        #: set while clients subscribe
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._last_client = time.monotonic()
        #: URL of the dispatcher that sent `_known`; versions of different dispatchers cannot be compared
        self._source = ""
        self._known: protocol.RoutingSummaries | None = None
        self._topics: dict[str, tuple[int, Schema]] = {}
        self._policies: dict[int, Placement] = {}
        #: topic uid → server → rectangles
        self._boxes: dict[int, dict[str, protocol.ServerRects]] = {}
        self._loads: dict[str, int] = {}

    @property
    def servers(self) -> int:
        """The known number of servers, including this one; reading it keeps the summaries fresh."""
        self._last_client = time.monotonic()
        self._wanted.set()
        return max(1, len(self._loads))

    # -- summaries --------------------------------------------------------------------------------------

    async def run(self) -> None:
        failing = False
        while True:
            try:
                await self.refresh()
                failing = False
            except Exception as error:
                # The known summaries stay in use until the dispatcher answers again.
                if not failing:
                    logger.warning("routing_summaries_unavailable", reason=str(error) or type(error).__name__)
                failing = True
            await asyncio.sleep(self._seconds)
            if time.monotonic() - self._last_client > IDLE_SECONDS:
                self._wanted.clear()
                await self._wanted.wait()

    async def refresh(self) -> None:
        if self._source != self._dispatchers.current:
            self._known = None
        known = self._known
        asked = {"incarnation": known.incarnation, "since": known.version} if known else {}
        answer = await self._dispatchers.request("GET", "/internal/routing-summaries", params=asked)
        answer.raise_for_status()
        if known is not None and self._source != self._dispatchers.current:
            return  # another dispatcher answered with changes only: the next call reads all
        self._source = self._dispatchers.current
        self.update(_decoder.decode(answer.content))

    def update(self, new: protocol.RoutingSummaries) -> None:
        former = self._known
        self._known = new
        if former is None or former.incarnation != new.incarnation:
            self._boxes.clear()
            self._policies.clear()
        elif _policy_inputs(former) != _policy_inputs(new):
            self._policies.clear()
        uids = {topic.uid for topic in new.topics}
        for gone in (self._boxes.keys() | self._policies.keys()) - uids:
            self._boxes.pop(gone, None)
            self._policies.pop(gone, None)
        schemas = dict(self._topics.values())
        self._topics = {
            topic.name: (topic.uid, _schema(topic, schemas.get(topic.uid))) for topic in new.topics
        }
        self._loads = {peer.id: peer.subscriptions for peer in new.peers}
        for boxes in new.boxes:
            if boxes.topic in uids:
                self._boxes.setdefault(boxes.topic, {})[boxes.server] = boxes
                if boxes.topic in self._policies:
                    _summarise(self._policies[boxes.topic], boxes)

    # -- choosing ---------------------------------------------------------------------------------------

    @any_thread
    def candidates(self, body: bytes) -> list[Candidate | None]:
        """Parses new subscriptions; None for an invalid one, whose error the dispatcher reports."""
        topics = self._topics
        try:
            given = strict_json.decode(body)
        except EdnError:
            return []
        return [_candidate(one, topics) for one in (given if isinstance(given, list) else [given])]

    def suggest(self, candidates: Sequence[Candidate | None]) -> list[str | None]:
        """Returns a host per candidate; an empty list without current summaries."""
        self._last_client = time.monotonic()
        if not self._wanted.is_set():
            self._wanted.set()
            return []  # the summaries may be old: the dispatcher chooses
        if self._known is None or not self._loads:
            return []
        return [None if one is None else self._choose(one) for one in candidates]

    def _choose(self, candidate: Candidate) -> str | None:
        policy, rects = self._policy(candidate.topic), candidate.rects
        if not rects.lo.size:
            return None
        try:
            server = policy.suggest(self._loads, rects.lo, rects.hi, location=candidate.location)
        except EdnError:  # an invalid location, which the dispatcher reports
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


def _policy_inputs(known: protocol.RoutingSummaries) -> Any:
    """Returns the inputs of policies: the rule, and the servers with their locations."""
    return known.rule, [(peer.id, peer.location, peer.distance) for peer in known.peers]


def _schema(topic: protocol.TopicInfo, former: Schema | None) -> Schema:
    if former is not None and former.to_wire() == topic.columns:
        return former
    return Schema.from_wire(topic.columns)


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
    if not isinstance(topic, str) or topic not in topics or given.get("sequence") is not None:
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

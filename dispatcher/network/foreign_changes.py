"""Applies changes of other dispatchers to the memory of this one.

The log calls `apply` on the event loop before it passes on the records that follow the changes
(`dispatcher.store.event_log`). So it must not wait: the table is widened when the next event is routed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dispatcher.auth.keys import Keys
from dispatcher.servers.bindings import Bindings
from dispatcher.servers.placement import Placer
from dispatcher.servers.registration import Registration
from dispatcher.servers.registry import ServerRegistry
from dispatcher.servers.summaries import Summaries
from dispatcher.store.changes import Gap, described
from dispatcher.subscriptions.replay import Replay
from dispatcher.subscriptions.sequences.binding import bind_stored, further_topics, rects_on
from dispatcher.subscriptions.topics import Topics
from edn import protocol
from edn.errors import EdnError
from edn.model.rect import Rects
from edn.runtime.ownership import owned

logger = structlog.get_logger()


@owned("loop")
@dataclass(frozen=True, eq=False)
class ForeignChanges:
    _topics: Topics
    _registry: ServerRegistry
    _registration: Registration
    _placer: Placer
    _summaries: Summaries
    _keys: Keys
    _bindings: Bindings
    _on_replay: Callable[[Replay], None]
    _on_repartition: Callable[[], None]
    #: gets the uid of a topic whose advertisements, schema or settings have changed
    _on_advertised: Callable[[int], None]

    def apply(self, gap: Gap) -> None:
        logger.debug("foreign_changes", **described(gap))
        for id, row in gap.servers.items():
            if row is None:
                self._registration.drop(id)
            else:
                self._registration.add_known(row)
                self._registry.set_leaving(id, gap.leaving.get(id))
        for uid, topic in gap.topics.items():
            if topic is None:
                self._topics.forget(uid)
                self._summaries.forget_topic(uid)
            else:
                self._topics.remember(topic)
        for uid in gap.advertised | gap.topics.keys():
            self._on_advertised(uid)
        self._widen(gap)
        if gap.versions or gap.loads:
            self._summaries.report_change()
        for server, more in gap.loads.items():
            if more > 0:
                self._placer.add_load(server, more)
            else:
                self._placer.remove_load(server, -more)
        if gap.keys is not None:
            self._keys.replace(gap.keys)
        if gap.bindings is not None:
            self._bindings.replace(gap.bindings)
        for replay in gap.replays:
            self._on_replay(replay)
        if gap.repartitions:
            self._on_repartition()

    def _widen(self, gap: Gap) -> None:
        """Route events to the servers of new versions."""
        together: dict[tuple[str, int, int, int], list[Rects]] = defaultdict(list)
        for one, epoch, seq in gap.versions:
            topic = self._topics.by_uid(one.topic)
            if one.subtree is not None or topic is None or self._registry.get(one.server) is None:
                continue  # it has ended: a later change tells it
            try:
                further = further_topics(one.filter, self._topics.by_uid)
                bound = bind_stored(one.filter, topic, further)
            except EdnError as error:
                logger.warning("filter_not_bound", subscription=one.id, reason=str(error))
                self._summaries.distrust(one.server)
                continue
            for uid in (one.topic, *(other.uid for other in further)):
                together[one.server, uid, epoch, seq].append(rects_on(bound, uid))
        for (server, uid, epoch, seq), rects_of in together.items():
            self._summaries.widen(server, uid, rects_of, protocol.Stored(epoch, seq))

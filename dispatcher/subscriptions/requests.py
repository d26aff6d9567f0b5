"""What callers ask of subscriptions, at whichever door: checked against what they may know of and use up, and
carried out; and subscriptions as they are shown.

The errors of a request name the place in it, as a JSON pointer.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.auth.caller import Caller
from dispatcher.auth.keys import Scope
from dispatcher.auth.quotas import Quotas
from dispatcher.config import Settings
from dispatcher.servers.placement import Placer
from dispatcher.store import directory
from dispatcher.store.event_log import Log
from dispatcher.subscriptions import signing_rings, sinks
from dispatcher.subscriptions.expiry import parse_expires, parse_since
from dispatcher.subscriptions.replay import Replayer
from dispatcher.subscriptions.service import Subscriptions, Wanted, check_room, new_id
from dispatcher.subscriptions.sinks import Sink
from dispatcher.subscriptions.stream_address import stream_address
from dispatcher.subscriptions.subtree import Subtree, bind, check_fits
from dispatcher.subscriptions.topics import Topic, Topics, path_of
from edn.errors import EdnError, Forbidden, InvalidInput, InvalidSink, NotFound, TooLarge
from edn.formats.webhooks import check_secret
from edn.http.sink_policy import check_url
from edn.model import namespace
from edn.model.coordinates import rfc3339
from edn.model.filter import BoundFilter, Filter

#: subscriptions in one array
MAX_SUBSCRIPTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Filter, sink and expiry that a subscriber asks for."""

    filter: Any = None
    #: None: a stream
    sink: Sink | None = None
    expires: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubscription(Change):
    topic: str
    id: str | None = None
    owner: str | None = None
    since: str | None = None
    location: list[float] | None = None


class SubscriptionRequests:
    """Event loop only."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        topics: Topics,
        placing: Placer,
        subscriptions: Subscriptions,
        replayer: Replayer,
        quotas: Quotas,
    ) -> None:
        self._settings = settings
        self._log = log
        self._placing = placing
        self._topics = topics
        self._subscriptions = subscriptions
        self._replayer = replayer
        self._quotas = quotas

    # -- what there is ----------------------------------------------------------------------------------

    def place(self, name: str, who: Caller) -> Topic | Subtree:
        """Return the topic or subtree that a caller may subscribe to under a name."""
        if not namespace.is_subtree(name):
            return self._topics.get(name, who.tenant)
        namespace.check_subtree_name(name)
        return Subtree(path_of(who.tenant, name))

    async def find(self, who: Caller, id: str) -> directory.Subscription:
        """A living subscription that this caller may know of; raises `NotFound`.

        Only the operator names those of tenants, by their keys (`edn.model.namespace`).
        """
        # Members are parts of what they are members of, and nothing by themselves.
        if namespace.is_member(id):
            raise NotFound(f'no subscription "{id[:80]}"')
        return await self._subscriptions.get(id if who.operates else namespace.key_of(who.tenant, id))

    def _topic_of(self, found: directory.Subscription) -> Topic | Subtree | None:
        """Return the topic or subtree of a subscription; None if its topic was just deleted."""
        return self._topics.by_uid(found.topic) if found.subtree is None else Subtree(found.subtree)

    # -- changing it ------------------------------------------------------------------------------------

    async def subscribe(
        self,
        body: NewSubscription | list[NewSubscription],
        who: Caller,
        suggested: Sequence[str | None] = (),
    ) -> tuple[Any, int, dict[str, str]]:
        """Subscribe one or many; the answer's content, status and headers."""
        # Servers know the operator's topics by name, and nobody else's.
        hosts = {} if who.tenant else dict(enumerate(suggested))
        if isinstance(body, list):
            if len(body) > MAX_SUBSCRIPTIONS:
                raise TooLarge(
                    f"{len(body)} subscriptions in one request; at most {MAX_SUBSCRIPTIONS} are taken"
                )
            wanted = [
                await self._wanted(one, who, f"/{place}", hosts.get(place)) for place, one in enumerate(body)
            ]
            await self._check_room(who, wanted)
            wanted, secrets = await signing_rings.assign(self._log, wanted)
            made = await self._subscriptions.create(wanted, self._quotas.room(who)) if wanted else []
            status = 200 if made and not any(new for _, new in made) else 201
            return {"subscriptions": [self.view(found, who, secrets) for found, _ in made]}, status, {}
        wanted = [await self._wanted(body, who, "", hosts.get(0))]
        await self._check_room(who, wanted)
        wanted, secrets = await signing_rings.assign(self._log, wanted)
        with _at_the_sink():
            [(found, new)] = await self._subscriptions.create(wanted, self._quotas.room(who))
        headers = {"location": f"/v1/subscriptions/{_shown(found.id, who)}"}
        return await self.whole_view(found, who, secrets), 201 if new else 200, headers

    async def change(self, id: str, body: Change, who: Caller) -> dict[str, Any]:
        """Replace filter, sink and expiry; the subscription as it is shown."""
        found = await self.find(who, id)
        topic = self._topic_of(found)
        if topic is None:
            raise NotFound(f'no subscription "{id[:80]}"')
        want = await self._wanted_on(topic, body, "", id=found.id, owner=found.owner)
        await self._check_room(who, [want])
        secrets: dict[str, str] = {}
        if want.secret is None and want.url == found.url:
            want = replace(want, ring=found.ring)  # the address stays, and what it is signed with
        else:
            [want], secrets = await signing_rings.assign(self._log, [want])
        with _at_the_sink():
            changed = await self._subscriptions.change(found.id, want, self._quotas.room(who))
        return await self.whole_view(changed, who, secrets)

    # -- from bodies to the model -----------------------------------------------------------------------

    async def _wanted(self, body: NewSubscription, who: Caller, prefix: str, suggested: str | None) -> Wanted:
        """A request for a new one, checked; `prefix`: its own place in what was sent."""
        try:
            topic = self.place(body.topic, who)
        except (NotFound, InvalidInput) as error:
            error.pointer = f"{prefix}/topic"
            raise
        # A stream is named after its subscription, so the id comes first.
        id = None if body.id is None else namespace.key_of(who.tenant, body.id)
        if body.sink is None and id is None:
            id = new_id(who.tenant)
        owner = _owner(body.owner, who, prefix)
        want = await self._wanted_on(topic, body, prefix, id=id, owner=owner)
        want = replace(want, since=await self._since(topic, body.since, prefix))
        if body.location is None:
            return replace(want, suggested=suggested)
        try:
            self._placing.check_location(body.location)
        except EdnError as error:
            error.pointer = f"{prefix}/location"
            raise
        return replace(want, suggested=suggested, location=tuple(body.location))

    async def _wanted_on(
        self,
        topic: Topic | Subtree,
        body: Change,
        prefix: str,
        *,
        id: str | None,
        owner: str,
    ) -> Wanted:
        """Check filter, sink and expiry, for a new subscription or a change."""
        place = "/filter"
        sink = body.sink or Sink(url=stream_address(id or ""))
        try:
            parsed = Filter.parse(body.filter)
            bound = await self._bound(parsed, topic)
            if body.sink is not None:
                place = "/sink/url"
                self._check_sink(body.sink.url)
            place = "/sink/secret"
            if sink.secret is not None:
                check_secret(sink.secret)
            place = "/sink"
            # A stream is no address that anybody else could be asked about.
            required = self._settings.require_consent and body.sink is not None
            url = sinks.address_of(sink, consent=required)
            place = ""
            log = self._log
            expires = (
                None
                if body.expires is None
                else parse_expires(body.expires, log.now(), estimate=log.estimate())
            )
        except EdnError as error:
            error.pointer = prefix + place + (error.pointer or "")
            raise
        return Wanted(
            id=id,
            owner=owner,
            topic=topic,
            filter=parsed,
            bound=bound,
            url=url,
            recipient=sink.recipient,
            expires=expires,
            secret=sink.secret,
        )

    async def _bound(self, filter: Filter, topic: Topic | Subtree) -> BoundFilter | None:
        """A filter under a topic's schema; of a subtree it is only checked that there may be one for it."""
        if isinstance(topic, Subtree):
            # In a thread: there may be thousands of topics, each with a schema of its own.
            await asyncio.to_thread(check_fits, filter, topic, self._topics.below(topic.path))
            return None
        return bind(filter, topic)

    async def _since(self, topic: Topic | Subtree, text: str | None, prefix: str) -> int | None:
        """Where a subscription begins, as `Wanted` has it."""
        if text is None:
            return 0
        now = self._log.now()
        since = parse_since(text, now, pointer=f"{prefix}/from")
        if since is None or isinstance(topic, Subtree):  # each topic tells what it has
            return since
        kept = topic.created if math.isinf(topic.availability) else now - int(topic.availability * 1e6)
        if since < max(kept, topic.created) and not await self._replayer.reaches(topic.uid, since):
            raise InvalidInput(
                f'from "{text[:60]}": events of "{topic.name}" are kept since '
                f"{rfc3339(max(kept, topic.created))}",
                pointer=f"{prefix}/from",
            )
        return since

    def _check_sink(self, url: str) -> None:
        development = self._settings.allow_loopback_sinks
        check_url(
            url,
            allow_loopback=development,
            allow_http=development,
            allow_mail=self._settings.allow_mail_sinks,
        )

    async def _check_room(self, who: Caller, wanted: Sequence[Wanted]) -> None:
        """Refuse early what a key's quota has no room for; the transaction that appends it decides."""
        room = self._quotas.room(who)
        await self._log.reading(lambda connection: check_room(room, connection, wanted))

    # -- from the model to bodies -----------------------------------------------------------------------

    def view(
        self, found: directory.Subscription, who: Caller, made: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """A subscription as it is shown; `made` are the secrets that were made for this very request."""
        secret = (made or {}).get(found.ring)
        return {
            "id": _shown(found.id, who),
            "topic": _named(self._topic_of(found), who),
            "filter": found.filter,
            "sink": sinks.view(found, secret),
            "state": "paused" if found.paused else "active",
            "expires": None if found.expires is None else rfc3339(found.expires),
            "owner": found.owner,
            "server": found.server or None,
            "created": rfc3339(found.created),
            "location": found.location,
        }

    async def whole_view(
        self, found: directory.Subscription, who: Caller, made: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The same; one to a subtree with the topics that it has, and those that it has not."""
        view = self.view(found, who, made)
        if found.subtree is None:
            return view
        rows = await self._log.reading(lambda connection: directory.members(connection, found.id))
        members = [{"topic": _named(self._topic_of(one), who), "server": one.server} for one in rows]
        others = [
            {"topic": _named(one.topic, who), "reason": one.reason}
            for one in await self._subscriptions.left_out(found)
        ]
        return {**view, "topics": sorted(members, key=lambda one: one["topic"]), "left_out": others}


def _owner(given: str | None, who: Caller, prefix: str) -> str:
    """Return the owner of a new subscription: the key's name, unless a key with the scope admin says another.

    An owner is a name inside the caller's tenant. Subscriptions of one owner to one URL share a secret, so a
    key must not be able to name somebody else.
    """
    if given is None or given == who.name or Scope.ADMIN in who.scopes:
        return given or who.name
    error = Forbidden(
        f'owner must be "{who.name}", the name of the key, got "{given[:80]}"; a key with the scope '
        "admin may set another one"
    )
    error.pointer = f"{prefix}/owner"
    raise error


def _shown(key: str, who: Caller) -> str:
    """A subscription by its id; of another tenant by its key."""
    return namespace.id_of(key) if namespace.owner_of(key) == who.tenant else key


def _named(topic: Topic | Subtree | None, who: Caller) -> str:
    """A topic by its name; of another tenant by its path."""
    if topic is None:
        return ""
    return topic.name if topic.tenant == who.tenant else topic.path


@contextlib.contextmanager
def _at_the_sink() -> Iterator[None]:
    """What a server says of a sink, of the only one that there is: it did not consent, say."""
    try:
        yield
    except InvalidSink as error:
        error.pointer = "/sink/url"
        raise

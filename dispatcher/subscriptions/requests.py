"""Validates requests of REST and SOAP for subscriptions, carries them out, and renders subscriptions.

Errors name the place in the request as a JSON pointer.
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
from dispatcher.store import directory, replays
from dispatcher.store.event_log import Log
from dispatcher.subscriptions import signing_rings, sink_credentials, sinks
from dispatcher.subscriptions.expiry import parse_expires, parse_since
from dispatcher.subscriptions.lifecycle import not_found
from dispatcher.subscriptions.sequences.binding import bind_stored, further_topics
from dispatcher.subscriptions.sequences.requests import Condition, check_no_members, prefixed, read_sequence
from dispatcher.subscriptions.service import SubscriptionRequest, Subscriptions, check_room, new_id
from dispatcher.subscriptions.sinks import Sink
from dispatcher.subscriptions.subtree import Subtree, bind, check_fits
from dispatcher.subscriptions.topics import Topic, Topics, path_of
from edn.errors import EdnError, Forbidden, InvalidInput, InvalidSink, NotFound, TooLarge
from edn.formats.sink_settings import OAuth2
from edn.formats.webhooks import check_secret
from edn.http.sink_policy import check_url
from edn.model import namespace
from edn.model.coordinates import rfc3339
from edn.model.filter import BoundFilter, Filter
from edn.model.sequence import BoundSequence, decode, is_sequence
from edn.model.sequence import Sequence as SequenceForm
from edn.model.sequence.form import Written, write

MAX_SUBSCRIPTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    filter: Any = None
    #: steps of a sequence, in place of a filter
    sequence: Any = None
    by: Any = None
    within: Any = None
    settle: Any = None
    sink: Sink | None = None
    expires: str | None = None
    #: a filter or sequence of the directory that stays
    stored: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubscription(Change):
    #: None: each step of the sequence has its own
    topic: str | None
    id: str | None = None
    owner: str | None = None
    since: str | None = None
    location: list[float] | None = None
    is_paused: bool = False


class SubscriptionRequests:
    """Event loop only."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        topics: Topics,
        placing: Placer,
        subscriptions: Subscriptions,
        quotas: Quotas,
    ) -> None:
        self._settings = settings
        self._log = log
        self._placing = placing
        self._topics = topics
        self._subscriptions = subscriptions
        self._quotas = quotas

    async def resolve(self, name: str, who: Caller) -> Topic | Subtree:
        """Return the topic or subtree of a caller's tenant by name."""
        if not namespace.is_subtree(name):
            return await self._topics.find(name, who.tenant)
        namespace.check_subtree_name(name)
        return Subtree(path_of(who.tenant, name))

    async def find(self, who: Caller, id: str) -> directory.Subscription:
        """Return a live subscription that the caller may see; raises `NotFound`.

        Only the operator can address subscriptions of tenants, by their keys (`edn.model.namespace`).
        """
        # A member is visible only through its subtree subscription.
        if namespace.is_member(id):
            raise NotFound(f'subscription "{id[:80]}" does not exist')
        return await self._subscriptions.get(id if who.is_operator else namespace.key_of(who.tenant, id))

    def _topic_of(self, found: directory.Subscription) -> Topic | Subtree | None:
        """Return the topic or subtree of a subscription; None if the topic was just deleted."""
        return self._topics.by_uid(found.topic) if found.subtree is None else Subtree(found.subtree)

    async def subscribe(
        self,
        body: NewSubscription | list[NewSubscription],
        who: Caller,
        suggested: Sequence[str | None] = (),
    ) -> tuple[Any, int, dict[str, str]]:
        """Create one or more subscriptions; return content, status and headers of the answer."""
        many = isinstance(body, list)
        items = body if isinstance(body, list) else [body]
        if len(items) > MAX_SUBSCRIPTIONS:
            raise TooLarge(f"subscriptions per request must be at most {MAX_SUBSCRIPTIONS}, got {len(items)}")
        # Servers know only the operator's topics by name.
        servers = {} if who.tenant else dict(enumerate(suggested))
        requests = [
            await self._validate_new(one, who, f"/{place}" if many else "", servers.get(place))
            for place, one in enumerate(items)
        ]
        await self._check_room(who, requests)
        requests, secrets = await signing_rings.assign(self._log, requests)
        requests = await sink_credentials.assign(self._log, requests, many=many)
        with contextlib.nullcontext() if many else _locate_sink():
            created = await self._subscriptions.create(requests, self._quotas.room(who)) if requests else []
        status = 200 if created and not any(new for _, new in created) else 201
        if many:
            views = [
                {**self.view(found, who, secrets), **_warning(request)}
                for (found, _), request in zip(created, requests, strict=True)
            ]
            return {"subscriptions": views}, status, {}
        [(found, _)], [request] = created, requests
        headers = {"location": f"/v1/subscriptions/{_visible_id(found.id, who)}"}
        return {**await self.full_view(found, who, secrets), **_warning(request)}, status, headers

    async def change(self, id: str, body: Change, who: Caller) -> dict[str, Any]:
        found = await self.find(who, id)
        topic = self._topic_of(found)
        if topic is None:
            raise not_found(found.id)
        if body.sink is not None:
            body = replace(body, sink=sinks.with_kept_headers(body.sink, found))
        request = await self._validate(topic, body, "", id=found.id, owner=found.owner, who=who)
        await self._check_room(who, [request])
        secrets: dict[str, str] = {}
        if request.secret is None and request.url == found.url:
            request = replace(request, ring=found.ring)  # the address stays the same
        else:
            [request], secrets = await signing_rings.assign(self._log, [request])
        [request] = await sink_credentials.assign(self._log, [request], found)
        with _locate_sink():
            changed = await self._subscriptions.change(found.id, request, self._quotas.room(who))
        return {**await self.full_view(changed, who, secrets), **_warning(request)}

    # -- validation -------------------------------------------------------------------------------------

    async def _validate_new(
        self, body: NewSubscription, who: Caller, prefix: str, suggested: str | None
    ) -> SubscriptionRequest:
        """Validate a request for a new subscription; `prefix`: its JSON pointer in the body."""
        topic = None
        if body.sequence is None:
            if body.topic is None:
                raise InvalidInput("topic must be given with a filter", pointer=f"{prefix}/topic")
            with _located(f"{prefix}/topic", override=True):
                topic = await self.resolve(body.topic, who)
        # The URL of a stream contains the id, so the id comes first.
        id = None if body.id is None else namespace.key_of(who.tenant, body.id)
        if body.sink is None and id is None:
            id = new_id(who.tenant)
        owner = _owner(body.owner, who, prefix)
        request = await self._validate(topic, body, prefix, id=id, owner=owner, who=who, name=body.topic)
        request = replace(request, is_paused=body.is_paused)
        if isinstance(request.filter, SequenceForm):
            if body.since is not None:
                raise InvalidInput(
                    "from must not be given with a sequence: it begins with live events",
                    pointer=f"{prefix}/from",
                )
            since = None
        else:
            since = await self._validate_since(request.topic, body.since, prefix)
        if body.location is None:
            return replace(request, since=since, suggested=suggested)
        with _located(f"{prefix}/location"):
            self._placing.check_location(body.location)
        return replace(request, since=since, suggested=suggested, location=tuple(body.location))

    async def _validate(
        self,
        topic: Topic | Subtree | None,
        body: Change,
        prefix: str,
        *,
        id: str | None,
        owner: str,
        who: Caller,
        name: str | None = None,
    ) -> SubscriptionRequest:
        """Validate a request; `name`: the topic for all steps of a sequence."""
        condition = await self._validate_condition(topic, body, prefix, who, name)
        sink = body.sink or Sink(url=sinks.stream_url(id or ""))
        if body.sink is not None:
            with _located(f"{prefix}/sink/url"):
                self._check_sink(body.sink.url)
        if sink.secret is not None:
            with _located(f"{prefix}/sink/secret"):
                check_secret(sink.secret)
        with _located(f"{prefix}/sink"):
            # A stream has no sink that could consent.
            required = self._settings.require_consent and body.sink is not None
            sink = sinks.with_credentials_of_url(sink)
            url = sinks.stored_url(sink, require_consent=required)
            settings = sinks.settings_of(sink)
            if settings.credentials:
                with _located("/url"):
                    self._check_sink(sinks.target_of(sink.url), allow_plain=False)
            if isinstance(sink.credentials, OAuth2):
                with _located("/credentials/token_url", override=True):
                    self._check_token_url(sink.credentials.token_url)
        expires, log = None, self._log
        if body.expires is not None:
            pointer = f"{prefix}/expires"
            expires = parse_expires(body.expires, log.now(), estimate=log.estimate(), pointer=pointer)
        return SubscriptionRequest(
            id=id,
            owner=owner,
            topic=condition.topic,
            filter=condition.filter,
            bound=condition.bound,
            further=condition.further,
            url=url,
            recipient=sink.recipient,
            expires=expires,
            secret=sink.secret,
            settings=settings,
            credentials=sink.credentials,
        )

    async def _validate_condition(
        self, topic: Topic | Subtree | None, body: Change, prefix: str, who: Caller, name: str | None
    ) -> Condition:
        """Validate the filter or the sequence of a request."""
        if body.stored is not None and is_sequence(body.stored):
            assert isinstance(topic, Topic)
            further = further_topics(body.stored, self._topics.by_uid)
            return Condition(topic, decode(body.stored), bind_stored(body.stored, topic, further), further)
        if body.sequence is None:
            check_no_members(body, prefix)
            assert topic is not None
            with _located(f"{prefix}/filter"):
                parsed = Filter.parse(body.filter if body.stored is None else body.stored)
                return Condition(topic, parsed, await self._bind(parsed, topic), ())
        if body.filter is not None:
            raise InvalidInput(
                "a subscription must have a filter or a sequence, got both", pointer=f"{prefix}/sequence"
            )
        if name is None and isinstance(topic, Topic):
            name = topic.name
        written = Written(body.sequence, name, body.by, body.within, body.settle)
        with prefixed(prefix):
            return await read_sequence(written, lambda name: self._topics.find(name, who.tenant))

    async def bind_sequence(self, steps: Any, topic: str | None, who: Caller) -> tuple[Topic, BoundSequence]:
        """Validate a sequence that selects others; return its first topic, and the bound sequence."""
        condition = await read_sequence(
            Written(steps, topic), lambda name: self._topics.find(name, who.tenant)
        )
        assert isinstance(condition.topic, Topic)
        assert isinstance(condition.bound, BoundSequence)
        return condition.topic, condition.bound

    async def _bind(self, filter: Filter, topic: Topic | Subtree) -> BoundFilter | None:
        """Bind a filter to the schema of a topic; for a subtree only check that it can fit."""
        if isinstance(topic, Subtree):
            # In a thread, because there may be thousands of schemas.
            await asyncio.to_thread(check_fits, filter, topic, self._topics.below(topic.path))
            return None
        return bind(filter, topic)

    async def _validate_since(self, topic: Topic | Subtree, text: str | None, prefix: str) -> int | None:
        """Return `SubscriptionRequest.since`; raises if events since then are no longer retained."""
        if text is None:
            return 0
        now = self._log.now()
        since = parse_since(text, now, pointer=f"{prefix}/from")
        if since is None or isinstance(topic, Subtree):  # each topic replays the events that it has
            return since
        oldest = topic.created
        if not math.isinf(topic.availability):
            oldest = max(oldest, now - int(topic.availability * 1e6))
        if since < oldest and not await self._log.reading(
            replays.has_available_before, topic.uid, now, since
        ):
            raise InvalidInput(
                f'from must not be before {rfc3339(oldest)}, since when events of "{topic.name}" are '
                f'retained, got "{text[:60]}"',
                pointer=f"{prefix}/from",
            )
        return since

    def _check_sink(self, url: str, *, allow_plain: bool = True) -> None:
        """Raise `InvalidSink` unless a URL is allowed; `allow_plain`: in development also to the Internet."""
        development = self._settings.allow_loopback_sinks
        check_url(
            url,
            allow_loopback=development,
            allow_http=development and allow_plain,
            allow_mail=self._settings.allow_mail_sinks,
            networks=self._settings.sink_networks,
        )

    def _check_token_url(self, url: str) -> None:
        """Check a token endpoint like a sink: a server calls it."""
        if not url.lower().startswith(("https:", "http:")):
            raise InvalidSink("credentials.token_url must begin with https://")
        try:
            self._check_sink(url)
        except InvalidSink as error:
            raise InvalidSink(error.detail.replace("the sink", "the token endpoint", 1)) from None

    async def _check_room(self, who: Caller, requests: Sequence[SubscriptionRequest]) -> None:
        """Refuse early if a quota is exceeded; the transaction checks again."""
        await self._log.reading(check_room, self._quotas.room(who), requests)

    # -- views ------------------------------------------------------------------------------------------

    def view(
        self, found: directory.Subscription, who: Caller, secrets: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the view of a subscription; `secrets`: those generated for this request, by ring."""
        secret = (secrets or {}).get(found.ring)
        return {
            "id": _visible_id(found.id, who),
            "topic": _visible_name(self._topic_of(found), who),
            **self._view_condition(found, who),
            "sink": sinks.view(found, secret),
            "state": "paused" if found.paused else "active",
            "expires": None if found.expires is None else rfc3339(found.expires),
            "owner": found.owner,
            "server": found.server or None,
            "created": rfc3339(found.created),
            "location": found.location,
        }

    def _view_condition(self, found: directory.Subscription, who: Caller) -> dict[str, Any]:
        if not is_sequence(found.filter):
            return {"filter": found.filter}
        sequence = decode(found.filter)
        return {"filter": None, **write(sequence, lambda uid: _visible_name(self._topics.by_uid(uid), who))}

    async def full_view(
        self, found: directory.Subscription, who: Caller, secrets: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the view of a subscription; for a subtree with its members and the topics left out."""
        view = self.view(found, who, secrets)
        if found.subtree is None:
            return view
        rows = await self._log.reading(directory.members, found.id)
        members = [{"topic": _visible_name(self._topic_of(one), who), "server": one.server} for one in rows]
        others = [
            {"topic": _visible_name(one.topic, who), "reason": one.reason}
            for one in await self._subscriptions.left_out(found)
        ]
        return {**view, "topics": sorted(members, key=lambda one: one["topic"]), "left_out": others}


def _owner(given: str | None, who: Caller, prefix: str) -> str:
    """Return the owner of a new subscription: the name of the key; a key with scope admin may set another.

    Subscriptions of one owner to one URL share a secret, so other keys must not set the owner.
    """
    if given is None or given == who.name or Scope.ADMIN in who.scopes:
        return given or who.name
    error = Forbidden(
        f'owner must be "{who.name}", the name of the key, got "{given[:80]}"; a key with the scope '
        "admin may set another one"
    )
    error.pointer = f"{prefix}/owner"
    raise error


def _warning(request: SubscriptionRequest) -> dict[str, str]:
    """Return the field of an answer that points out a filter that no event can match."""
    if request.bound is None or len(request.bound.rects()):
        return {}
    return {"warning": "no event can match the filter: its conditions exclude each other"}


def _visible_id(key: str, who: Caller) -> str:
    """Return the id of a subscription, or its key if it is another tenant's."""
    return namespace.id_of(key) if namespace.owner_of(key) == who.tenant else key


def _visible_name(topic: Topic | Subtree | None, who: Caller) -> str:
    """Return the name of a topic, or its path if it is another tenant's."""
    if topic is None:
        return ""
    return topic.name if topic.tenant == who.tenant else topic.path


@contextlib.contextmanager
def _located(pointer: str, errors: type[EdnError] = EdnError, *, override: bool = False) -> Iterator[None]:
    """Prepend a place in the request to the pointer of errors, or replace the pointer by it."""
    try:
        yield
    except errors as error:
        error.pointer = pointer if override else pointer + (error.pointer or "")
        raise


def _locate_sink() -> contextlib.AbstractContextManager[None]:
    """Locate errors that servers report about a sink, such as a refused consent."""
    return _located("/sink/url", InvalidSink, override=True)

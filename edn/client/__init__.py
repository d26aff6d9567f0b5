"""The client library: `Client`, and `AsyncClient` for asyncio, with the same calls.

`calls`, `advertising`, `delivery`, `network`, `sources` and `moving` describe each call once; `conversation`
retries and `streaming` reads streams without I/O; `tls` loads certificates. `receiver` is not imported here.
Results are models of `edn.api`, errors are in `problems`. Imports httpx and msgspec, but neither numpy nor
numba, so that importing it stays fast.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import httpx
from httpx_sse import EventSource, SSEError

from edn.api.delivery import Attempt, DeadLetter, DeadLetterPage, Delivery, Queued, Rotation
from edn.api.events import Advertisement, AdvertisementPage, Published
from edn.api.keys import Key, Tenant
from edn.api.routes import Binding, Route, Routes
from edn.api.secrets import SealedSecrets, SealedStore
from edn.api.servers import Clock, Dispatcher, Server
from edn.api.sources import Source, SourceLetter
from edn.api.subscriptions import Sink, Subscription, SubscriptionPage
from edn.api.topics import Topic
from edn.api.tuning import Tuning
from edn.client import advertising, calls, delivery, network
from edn.client import sources as source_calls
from edn.client.calls import KEEP, Keep, NewSubscription
from edn.client.conversation import Call, Outcome, Plan, Retries, Send, Step, Wait, converse, problem_of
from edn.client.network import Health
from edn.client.notifications import Match, Notification, NotifiedEvent, StreamedNotification
from edn.client.problems import ClientError, ProblemError, UnexpectedAnswerError, UnreachableError
from edn.client.streaming import StreamReader
from edn.client.tls import TlsOptions

__all__ = [
    "KEEP",
    "Advertisement",
    "AdvertisementPage",
    "AsyncClient",
    "Attempt",
    "Binding",
    "Client",
    "ClientError",
    "Clock",
    "DeadLetter",
    "DeadLetterPage",
    "Delivery",
    "Dispatcher",
    "Health",
    "Keep",
    "Key",
    "Match",
    "NewSubscription",
    "Notification",
    "NotifiedEvent",
    "ProblemError",
    "Published",
    "Queued",
    "Retries",
    "Rotation",
    "Route",
    "Routes",
    "SealedSecrets",
    "SealedStore",
    "Server",
    "Sink",
    "Source",
    "SourceLetter",
    "StreamedNotification",
    "Subscription",
    "SubscriptionPage",
    "Tenant",
    "Topic",
    "Tuning",
    "UnexpectedAnswerError",
    "UnreachableError",
]

DEFAULT_URL = "http://127.0.0.1:8080"

P = ParamSpec("P")
T = TypeVar("T")


class _Method(Generic[P, T]):
    """A call as a method: returns its result on `Client`, an awaitable of it on `AsyncClient`."""

    def __init__(self, describe: Callable[P, Call[T] | Plan[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Awaitable[T]]: ...

    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        if client is None:
            return self
        run: Callable[[Any], Any] = client.run

        @functools.wraps(self._describe)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return run(self._describe(*args, **kwargs))

        return call


#: seconds for which a URL that failed gets no publishes
AVOID_SECONDS = 5.0


class _Calls:
    """The calls that both clients share, and their URLs and key."""

    create_topic = _Method(calls.create_topic)
    topics = _Method(calls.topics)
    topic = _Method(calls.topic)
    delete_topic = _Method(calls.delete_topic)
    subscribe = _Method(calls.subscribe)
    subscribe_many = _Method(calls.subscribe_many)
    subscription = _Method(calls.subscription)
    subscription_page = _Method(calls.subscription_page)
    change = _Method(calls.change)
    renew = _Method(calls.renew)
    pause = _Method(calls.pause)
    resume = _Method(calls.resume)
    unsubscribe = _Method(calls.unsubscribe)
    unsubscribe_covered = _Method(calls.unsubscribe_covered)
    advertise = _Method(advertising.advertise)
    advertisement = _Method(advertising.advertisement)
    advertisement_page = _Method(advertising.advertisement_page)
    change_advertisement = _Method(advertising.change_advertisement)
    unadvertise = _Method(advertising.unadvertise)
    unadvertise_covered = _Method(advertising.unadvertise_covered)
    topic_schema = _Method(advertising.topic_schema)
    asyncapi = _Method(advertising.asyncapi)
    attempts = _Method(delivery.attempts)
    dead_letter_page = _Method(delivery.dead_letter_page)
    dead_letter = _Method(delivery.dead_letter)
    resend = _Method(delivery.resend)
    recover = _Method(delivery.recover)
    enable = _Method(delivery.enable)
    send_example = _Method(delivery.send_example)
    rotate_secret = _Method(delivery.rotate_secret)
    publish = _Method(calls.publish)
    publish_many = _Method(calls.publish_many)
    servers = _Method(network.servers)
    dispatchers = _Method(network.dispatchers)
    routes = _Method(network.routes)
    bind_route = _Method(network.bind_route)
    unbind_route = _Method(network.unbind_route)
    clock = _Method(network.clock)
    confirm_clock = _Method(network.confirm_clock)
    secrets = _Method(network.secrets)
    reseal_secrets = _Method(network.reseal_secrets)
    ownership = _Method(network.ownership)
    tuning = _Method(network.tuning)
    tune = _Method(network.tune)
    explain_event = _Method(calls.explain_event)
    explain_filter = _Method(calls.explain_filter)
    follow = _Method(calls.follow)
    health = _Method(network.health)
    create_key = _Method(network.create_key)
    keys = _Method(network.keys)
    tenants = _Method(network.tenants)
    revoke_key = _Method(network.revoke_key)
    create_source = _Method(source_calls.create_source)
    sources = _Method(source_calls.sources)
    source = _Method(source_calls.source)
    delete_source = _Method(source_calls.delete_source)
    source_dead_letters = _Method(source_calls.source_dead_letters)
    delete_source_dead_letters = _Method(source_calls.delete_source_dead_letters)

    def __init__(
        self,
        url: str | Sequence[str],
        retries: Retries | None,
        key: str | None,
        tls: TlsOptions,
        spread: bool,
    ) -> None:
        given = url.split(",") if isinstance(url, str) else url
        self.urls = tuple(dict.fromkeys(one.strip().rstrip("/") for one in given))
        for one in self.urls or ("",):
            if not one.startswith(("http://", "https://")):
                raise ValueError(f"the URL of a network must begin with http:// or https://, got {one!r}")
        self.url = self.urls[0]
        self.retries = retries or Retries()
        self._failures = 0
        self._spread = spread
        #: publishes so far; the first one of each client goes to a random URL
        self._turn = random.randrange(len(self.urls))
        #: URL → monotonic time until which it gets no publishes, after a failure
        self._avoided: dict[str, float] = {}
        given_key = os.environ.get("EDN_KEY") if key is None else key
        self._key = given_key.strip() if given_key else None
        # Loading certificates takes a while: only where they are needed.
        self._tls = tls.context() if any(one.startswith("https:") for one in self.urls) else True

    def _http_options(self, url: str, timeout: float) -> dict[str, Any]:
        return {
            "base_url": url,
            "timeout": httpx.Timeout(timeout, connect=min(timeout, 5.0)),
            "headers": {
                "User-Agent": "edn-client",
                "Accept": "application/json",
                **({} if self._key is None else {"Authorization": f"Bearer {self._key}"}),
            },
            "trust_env": False,  # proxies of the environment are not meant for the network
            "verify": self._tls,
        }

    def _steps(self, work: Call[T] | Plan[T]) -> Generator[Step, Outcome, T]:
        return converse(work, self.retries, ", ".join(self.urls), len(self.urls))

    def _current_url(self) -> str:
        """Returns the URL in use, which changes after a failure."""
        return self.urls[self._failures % len(self.urls)]

    def _url_for(self, call: Call[Any], route: list[str]) -> str:
        """Returns the URL for a request: publishes are spread over all URLs that have not just failed.

        All requests of a conversation use the same URL, which is the last of `route`, while it answers.
        """
        if not (call.is_spread and self._spread):
            return self._current_url()
        now = time.monotonic()
        if not route or self._avoided.get(route[-1], 0.0) > now:
            self._turn += 1
            order = [self.urls[(self._turn + place) % len(self.urls)] for place in range(len(self.urls))]
            route.append(next((url for url in order if self._avoided.get(url, 0.0) <= now), order[0]))
        return route[-1]

    def _switch_after(self, url: str, outcome: Outcome) -> Outcome:
        """Avoids a URL after a failure, and switches to the next one unless another thread already has."""
        failed = isinstance(outcome, httpx.TransportError) or (
            isinstance(outcome, httpx.Response) and outcome.status_code == 503
        )
        if failed:
            self._avoided[url] = time.monotonic() + AVOID_SECONDS
        if failed and url == self._current_url():
            self._failures += 1
        return outcome


def _request_options(call: Call[Any], url: str) -> dict[str, Any]:
    headers = dict(call.headers)
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": call.method,
        "url": url + call.path,
        "params": dict(call.query) or None,
        "content": call.body,
        "headers": headers,
    }


class Client(_Calls):
    """A client of a network. Threads may share it; close it, or use it in a `with` statement.

    For a network with several dispatchers pass all URLs, as a list or separated by commas: if one does not
    answer, the next one is used. Published events are spread over all of them, and a repeated request is the
    same event at any of them. Subscribers get the events of one dispatcher in their order; `spread=False`
    publishes to one dispatcher while it answers. `key` is an API key; the default is the environment variable
    EDN_KEY. `tls_ca`, `tls_cert` and `tls_key` are PEM files for https: the authority of the network's
    certificates, and the client's own certificate; the defaults are EDN_TLS_CA, EDN_TLS_CERT and EDN_TLS_KEY.
    """

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
        *,
        key: str | None = None,
        timeout: float = 10.0,
        retries: Retries | None = None,
        spread: bool = True,
        tls_ca: str | Path | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(url, retries, key, TlsOptions.choose(tls_ca, tls_cert, tls_key), spread)
        self._http = httpx.Client(**self._http_options(self.url, timeout), transport=transport)
        self._sleep = sleep

    def streaming(self, url: str) -> httpx.Client:
        """Opens an HTTP client with this client's key, for long answers; the caller closes it."""
        return httpx.Client(**self._http_options(url, 600.0))

    def subscriptions(
        self,
        *,
        topic: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
        members: bool = False,
        dead: bool = False,
    ) -> Iterator[Subscription]:
        """Iterates over all subscriptions and reads them page by page; `limit` is the size of a page."""
        page: SubscriptionPage | None = None
        while page is None or page.next is not None:
            cursor = page.next if page else None
            page = self.subscription_page(
                topic=topic, owner=owner, limit=limit, cursor=cursor, members=members, dead=dead
            )
            yield from page.subscriptions

    def advertisements(
        self, *, topic: str | None = None, publisher: str | None = None, limit: int | None = None
    ) -> Iterator[Advertisement]:
        """Iterates over all advertisements and reads them page by page."""
        page: AdvertisementPage | None = None
        while page is None or page.next is not None:
            cursor = page.next if page else None
            page = self.advertisement_page(topic=topic, publisher=publisher, limit=limit, cursor=cursor)
            yield from page.advertisements

    def wanted(self, id: str) -> Iterator[bool]:
        """Iterates over whether an advertisement is wanted: now, and whenever that changes.

        It ends with the advertisement, and with the connection.
        """
        path = f"{self._current_url()}{advertising.advertisement_path(id)}/wanted"
        with self._http.stream("GET", path, timeout=None) as response:
            if not response.is_success:
                response.read()
                raise problem_of(response)
            for event in EventSource(response).iter_sse():
                if event.event == "wanted":
                    yield advertising.read_wanted(event.data)

    def stream(
        self, id: str, *, after: str | None = None, on_gap: Callable[[str], object] | None = None
    ) -> Iterator[StreamedNotification]:
        """Iterates over the notifications of a subscription without a URL, until it ends.

        Reconnects and continues after the last notification; `after` is the `position` of an earlier one.
        `on_gap` is called with the reason if unread notifications were dropped; by default it is logged.
        """
        reader = StreamReader(id, after, on_gap, self.retries, ", ".join(self.urls))
        while not reader.has_ended:
            url = self._current_url()
            outcome: httpx.Response | httpx.TransportError | SSEError | None = None
            try:
                with self._http.stream(**reader.request(url)) as response:
                    if response.is_success:
                        reader.connected()
                        for event in EventSource(response).iter_sse():
                            notification = reader.read(event)
                            if notification is not None:
                                yield notification
                    else:
                        response.read()
                        outcome = response
            except SSEError as error:
                outcome = error
            except httpx.TransportError as error:
                outcome = error
            if not reader.has_ended:
                if not isinstance(outcome, SSEError):
                    self._switch_after(url, outcome)
                self._sleep(reader.wait_after(outcome))

    def dead_letters(
        self, *, subscription: str | None = None, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """Iterates over all dead letters and reads them page by page."""
        page: DeadLetterPage | None = None
        while page is None or page.next is not None:
            after = page.next if page else None
            page = self.dead_letter_page(subscription=subscription, limit=limit, after=after)
            yield from page.dead_letters

    def run(self, work: Call[T] | Plan[T]) -> T:
        """Performs a call or a plan; the methods of this class call it."""
        conversation = self._steps(work)
        outcome: Outcome = None
        route: list[str] = []
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = self._perform(step, route)

    def _perform(self, step: Step, route: list[str]) -> Outcome:
        match step:
            case Wait(seconds):
                self._sleep(seconds)
                return None
            case Send(call):
                url = self._url_for(call, route)
                try:
                    return self._switch_after(url, self._http.request(**_request_options(call, url)))
                except httpx.TransportError as error:
                    return self._switch_after(url, error)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Calls):
    """`Client` for asyncio: calls are awaited, `subscriptions` and `dead_letters` are async iterators."""

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
        *,
        key: str | None = None,
        timeout: float = 10.0,
        retries: Retries | None = None,
        spread: bool = True,
        tls_ca: str | Path | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(url, retries, key, TlsOptions.choose(tls_ca, tls_cert, tls_key), spread)
        self._http = httpx.AsyncClient(**self._http_options(self.url, timeout), transport=transport)
        self._sleep = sleep

    async def subscriptions(
        self,
        *,
        topic: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
        members: bool = False,
        dead: bool = False,
    ) -> AsyncIterator[Subscription]:
        """Iterates over all subscriptions and reads them page by page; `limit` is the size of a page."""
        page: SubscriptionPage | None = None
        while page is None or page.next is not None:
            cursor = page.next if page else None
            page = await self.subscription_page(
                topic=topic, owner=owner, limit=limit, cursor=cursor, members=members, dead=dead
            )
            for subscription in page.subscriptions:
                yield subscription

    async def advertisements(
        self, *, topic: str | None = None, publisher: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Advertisement]:
        """Iterates over all advertisements and reads them page by page."""
        page: AdvertisementPage | None = None
        while page is None or page.next is not None:
            cursor = page.next if page else None
            page = await self.advertisement_page(topic=topic, publisher=publisher, limit=limit, cursor=cursor)
            for one in page.advertisements:
                yield one

    async def wanted(self, id: str) -> AsyncIterator[bool]:
        """Iterates over whether an advertisement is wanted; see `Client.wanted`."""
        path = f"{self._current_url()}{advertising.advertisement_path(id)}/wanted"
        async with self._http.stream("GET", path, timeout=None) as response:
            if not response.is_success:
                await response.aread()
                raise problem_of(response)
            async with aclosing(EventSource(response).aiter_sse()) as events:
                async for event in events:
                    if event.event == "wanted":
                        yield advertising.read_wanted(event.data)

    async def stream(
        self, id: str, *, after: str | None = None, on_gap: Callable[[str], object] | None = None
    ) -> AsyncIterator[StreamedNotification]:
        """Iterates over the notifications of a subscription without a URL; see `Client.stream`."""
        reader = StreamReader(id, after, on_gap, self.retries, ", ".join(self.urls))
        while not reader.has_ended:
            url = self._current_url()
            outcome: httpx.Response | httpx.TransportError | SSEError | None = None
            try:
                async with self._http.stream(**reader.request(url)) as response:
                    if response.is_success:
                        reader.connected()
                        async with aclosing(EventSource(response).aiter_sse()) as events:
                            async for event in events:
                                notification = reader.read(event)
                                if notification is not None:
                                    yield notification
                    else:
                        await response.aread()
                        outcome = response
            except SSEError as error:
                outcome = error
            except httpx.TransportError as error:
                outcome = error
            if not reader.has_ended:
                if not isinstance(outcome, SSEError):
                    self._switch_after(url, outcome)
                await self._sleep(reader.wait_after(outcome))

    async def dead_letters(
        self, *, subscription: str | None = None, limit: int | None = None
    ) -> AsyncIterator[DeadLetter]:
        """Iterates over all dead letters and reads them page by page."""
        page: DeadLetterPage | None = None
        while page is None or page.next is not None:
            after = page.next if page else None
            page = await self.dead_letter_page(subscription=subscription, limit=limit, after=after)
            for letter in page.dead_letters:
                yield letter

    async def run(self, work: Call[T] | Plan[T]) -> T:
        """Performs a call or a plan; the methods of this class call it."""
        conversation = self._steps(work)
        outcome: Outcome = None
        route: list[str] = []
        while True:
            try:
                step = conversation.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = await self._perform(step, route)

    async def _perform(self, step: Step, route: list[str]) -> Outcome:
        match step:
            case Wait(seconds):
                await self._sleep(seconds)
                return None
            case Send(call):
                url = self._url_for(call, route)
                try:
                    return self._switch_after(url, await self._http.request(**_request_options(call, url)))
                except httpx.TransportError as error:
                    return self._switch_after(url, error)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

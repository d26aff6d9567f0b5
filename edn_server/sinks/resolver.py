"""Resolves the names of sinks without blocking: asynchronous, cached, and bounded per tenant.

Theory of operation
-------------------
`getaddrinfo` blocks a thread for as long as a name server does not answer, and cannot be cancelled. A tenant
with a hundred names at a dead name server would block all threads. So c-ares resolves names (`aiodns`): a
look-up in flight is a few hundred bytes. It reads /etc/resolv.conf and /etc/hosts and follows their changes;
nsswitch modules (LDAP, mDNS) are not supported, because public sinks do not need them (docs/adr/0015).

    cached      an answer for its TTL, from `SHORTEST` to `LONGEST` seconds; a failure for `NEGATIVE` seconds.
                At most `ENTRIES` names; the least recently used is evicted first
    shared      a name in flight is not looked up a second time
    bounded     a tenant has at most `LOOKUPS` look-ups in flight; its further ones wait

A look-up continues when its caller stops waiting, and its outcome is cached for the next attempt. Callers
check every address at every connection (`edn.http.sink_policy`), so a cached answer is checked like a new
one.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import aiodns

from edn.runtime.ownership import owned

SHORTEST = 1.0
LONGEST = 30.0
NEGATIVE = 5.0
ENTRIES = 4096
#: look-ups of one tenant in flight
LOOKUPS = 128
#: seconds until a query is repeated, and number of queries
QUESTION_SECONDS = 2.0
QUESTIONS = 2
#: timeout of a look-up over all name servers and search domains
LOOKUP_SECONDS = 10.0

#: returns the addresses of a host and their TTL in seconds; raises `OSError`
Lookup = Callable[[str], Awaitable[tuple[Sequence[str], float]]]


class Unresolved(OSError):
    """A name has no address; the message names the reason."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    addresses: tuple[str, ...]
    #: reason, without addresses
    failure: str
    expires: float


@owned("loop")
class Resolver:
    def __init__(
        self,
        nameservers: Sequence[str] = (),
        *,
        lookup: Lookup | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`nameservers`: address or address:port; the system's by default."""
        self._nameservers = list(nameservers)
        self._lookup = lookup or self._ask
        self._monotonic = monotonic
        self._channel: aiodns.DNSResolver | None = None
        self._cache: OrderedDict[str, _Outcome] = OrderedDict()
        self._in_flight: dict[str, asyncio.Task[_Outcome]] = {}
        #: by tenant; a semaphore lives as long as a look-up uses it
        self._bounds: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def close(self) -> None:
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def resolve(self, host: str, tenant: str) -> tuple[str, ...]:
        """Returns the addresses of a host; raises `Unresolved`."""
        name = host.lower().removesuffix(".")
        outcome = self._cached(name)
        if outcome is None:
            task = self._in_flight.get(name)
            if task is None:
                task = asyncio.create_task(self._bounded(name, tenant), name="lookup")
                self._in_flight[name] = task
                task.add_done_callback(lambda _: self._in_flight.pop(name, None))
            outcome = await asyncio.shield(task)
        if not outcome.addresses:
            raise Unresolved(f"the name {host} does not resolve: {outcome.failure}")
        return outcome.addresses

    def _cached(self, name: str) -> _Outcome | None:
        outcome = self._cache.get(name)
        if outcome is None:
            return None
        if outcome.expires <= self._monotonic():
            del self._cache[name]
            return None
        self._cache.move_to_end(name)
        return outcome

    async def _bounded(self, name: str, tenant: str) -> _Outcome:
        bound = self._bounds.setdefault(tenant, asyncio.Semaphore(LOOKUPS))
        async with bound:
            return await self._look_up(name)

    async def _look_up(self, name: str) -> _Outcome:
        addresses: Sequence[str] = ()
        seconds, failure = NEGATIVE, "it has no address"
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                addresses, ttl = await self._lookup(name)
            seconds = min(max(ttl, SHORTEST), LONGEST) if addresses else NEGATIVE
        except TimeoutError:
            failure = f"no answer within {LOOKUP_SECONDS:g} s"
        except Exception as error:  # for example a name that cannot be encoded
            failure = str(error) or type(error).__name__
        outcome = _Outcome(tuple(dict.fromkeys(addresses)), failure, self._monotonic() + seconds)
        self._cache[name] = outcome
        self._cache.move_to_end(name)
        if len(self._cache) > ENTRIES:
            self._cache.popitem(last=False)
        return outcome

    async def _ask(self, name: str) -> tuple[Sequence[str], float]:
        if self._channel is None:
            self._channel = aiodns.DNSResolver(
                self._nameservers or None, timeout=QUESTION_SECONDS, tries=QUESTIONS
            )
        try:
            found = await self._channel.getaddrinfo(name, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            raise Unresolved(str(error.args[-1])) from None
        addresses = [node.addr[0] for node in found.nodes]
        texts = [one.decode() if isinstance(one, bytes) else one for one in addresses]
        return texts, min((float(node.ttl) for node in found.nodes), default=0.0)

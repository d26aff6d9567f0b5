"""Fetches access tokens for sinks: OAuth 2 client credentials (RFC 6749, section 4.4).

A token is cached by the id of a sink's settings and fetched anew before it expires; concurrent deliveries
wait for one request. A failure is not cached: it fails the attempt that needs the token, whose address is
then retried by its schedule, and concerns no other address.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple
from urllib.parse import quote_plus, urlencode

import msgspec

from edn.formats.sink_settings import MAX_TOKEN, OAuth2
from edn.runtime.ownership import owned

#: tokens in memory
MOST_TOKENS = 10_000
#: a token is fetched anew this long before it expires, at most a fifth of its life
MARGIN_SECONDS = 60.0
#: life of a token whose answer names none
LIFE_SECONDS = 3600.0
FETCH_SECONDS = 10.0


class TokenFailed(Exception):
    """No token was fetched; the message contains the reason, and no secret."""


class TokenAnswer(NamedTuple):
    """The answer of a token endpoint; without a status, why there is none."""

    status: int | None
    body: bytes
    reason: str = ""


#: posts a body to a URL with header lines, for a tenant
Post = Callable[[str, bytes, str, str], Awaitable[TokenAnswer]]


class _Token(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOKEN, pattern=r"^[\x21-\x7e]+$")]
    token_type: str = "bearer"
    expires_in: float | None = None


_decoder = msgspec.json.Decoder(_Token, strict=False)


@owned("loop")
class Tokens:
    def __init__(self, post: Post, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._post = post
        self._monotonic = monotonic
        #: id of settings → token, and the time from which it is fetched anew
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._in_flight: dict[str, asyncio.Task[str]] = {}

    async def close(self) -> None:
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cached(self, id: str) -> str | None:
        """Return the token of settings, if it is valid for a while."""
        known = self._known.get(id)
        return known[0] if known is not None and self._monotonic() < known[1] else None

    def discard(self, id: str, token: str) -> None:
        """Forget a token that the sink refused, unless a newer one is known."""
        known = self._known.get(id)
        if known is not None and known[0] == token:
            del self._known[id]

    async def get(self, id: str, client: OAuth2, tenant: str) -> str:
        """Return a token; raises `TokenFailed`."""
        token = self.cached(id)
        if token is not None:
            self._known.move_to_end(id)
            return token
        task = self._in_flight.get(id)
        if task is None:
            task = asyncio.create_task(self._fetch(id, client, tenant), name="token")
            self._in_flight[id] = task
            task.add_done_callback(lambda _: self._in_flight.pop(id, None))
        return await asyncio.shield(task)

    async def _fetch(self, id: str, client: OAuth2, tenant: str) -> str:
        answer = await self._post(client.token_url, *request(client), tenant)
        if answer.status is None:
            raise TokenFailed(f"no token: the token endpoint failed: {answer.reason}")
        if answer.status != 200:
            raise TokenFailed(f"no token: the token endpoint answered {answer.status}")
        try:
            token = _decoder.decode(answer.body)
        except msgspec.MsgspecError as error:
            where = str(error).partition(" - at ")[2] or "the document"
            raise TokenFailed(
                "no token: the token endpoint must answer a JSON object with access_token, a printable text "
                f"of at most {MAX_TOKEN} characters; wrong at {where[:80]}"
            ) from None
        if token.token_type.lower() != "bearer":
            raise TokenFailed(
                f'no token: the token endpoint\'s token_type must be Bearer, got "{token.token_type[:40]}"'
            )
        life = token.expires_in if token.expires_in is not None and token.expires_in > 0 else LIFE_SECONDS
        life = min(life, 86_400.0)
        self._known[id] = (token.access_token, self._monotonic() + life - min(MARGIN_SECONDS, life / 5))
        if len(self._known) > MOST_TOKENS:
            self._known.popitem(last=False)
        return token.access_token


def request(client: OAuth2) -> tuple[bytes, str]:
    """Return body and header lines of a token request."""
    fields = {"grant_type": "client_credentials"}
    for name in ("scope", "audience"):
        if getattr(client, name) is not None:
            fields[name] = getattr(client, name)
    head = "content-type: application/x-www-form-urlencoded\r\n"
    if client.authentication == "body":
        fields |= {"client_id": client.client_id, "client_secret": client.client_secret}
    else:  # RFC 6749, section 2.3.1: both are encoded before they are joined
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        head += f"authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"
    return urlencode(fields).encode(), head

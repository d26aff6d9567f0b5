"""Passes control-plane requests to the leader, in a network of multiple dispatchers.

A follower passes the request on unchanged, key included, and returns the leader's response unchanged. The
leader executes it as if it were alone, and delays the response until every dispatcher that may accept events
has replicated the change (`replication.lease`). Every dispatcher serves reads and publishes itself.
"""

from __future__ import annotations

import asyncio
import re

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatcher.auth.access import PASSED_ON
from dispatcher.replication.lease import Peers
from edn.errors import EdnError, Unavailable
from edn.http.asgi import bug_response, problem_response, read_body
from edn.http.control_client import Timeout, exact_url
from edn.http.proxy import TIMEOUT, NotReached, pass_back

_CHANGES = (
    ({"PUT", "DELETE"}, re.compile(r"/v1/topics/[^/]+")),
    ({"POST", "DELETE"}, re.compile(r"/v1/subscriptions")),
    ({"PUT", "DELETE"}, re.compile(r"/v1/subscriptions/[^/]+")),
    ({"POST"}, re.compile(r"/v1/subscriptions/[^/]+/(renew|pause|resume|rotate-secret)")),
    ({"POST"}, re.compile(r"/cloudevents/subscriptions")),
    ({"PUT", "DELETE"}, re.compile(r"/cloudevents/subscriptions/[^/]+")),
    ({"POST"}, re.compile(r"/internal/subscribe")),
    ({"POST"}, re.compile(r"/internal/subscriptions/[^/]+/failed")),
    ({"POST"}, re.compile(r"/v1/keys")),
    ({"DELETE"}, re.compile(r"/v1/keys/[^/]+")),
    ({"PUT", "DELETE"}, re.compile(r"/v1/routes/.+")),
    # Not changes, but only the leader has their state.
    ({"GET", "POST"}, re.compile(r"/v1/repartitions(/.*)?")),
    ({"POST"}, re.compile(r"/v1/servers/[^/]+/(drain|replace|fill)")),
)
_NOT_PASSED = {"host", "content-length", "connection", "transfer-encoding", "expect", PASSED_ON}
#: attempts to find and reach a leader
TRIES = 20


class LeaderProxy:
    """Executes a request on the leader; may be this dispatcher."""

    def __init__(self, app: ASGIApp, peers: Peers, *, limit: int, secret: str) -> None:
        """`app` executes requests; `limit`: bytes of one body; `secret`: the network's."""
        self._secret = secret
        self._app = app
        self._peers = peers
        self._limit = limit

    @staticmethod
    def handles(scope: Scope) -> bool:
        if scope["type"] != "http":
            return False
        method, path = scope["method"], scope["path"].rstrip("/")
        return any(method in methods and pattern.fullmatch(path) for methods, pattern in _CHANGES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            url = await self._peers.turn()
            if url is not None:
                body = await read_body(receive, self._limit)
                response = await self._pass_on(url, scope, body)
                if response is not None:
                    await response(scope, receive, send)
                    return
                receive = replayed(body)
        except EdnError as error:
            await problem_response(error)(scope, receive, send)
            return
        except Exception as error:
            await bug_response(scope["path"], error)(scope, receive, send)
            return
        try:
            await self._execute(scope, receive, send)
        finally:
            self._peers.done()

    async def _execute(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_when_replicated(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._peers.settled()
            await send(message)

        await self._app(scope, receive, send_when_replicated)

    async def _pass_on(self, url: str | None, scope: Scope, body: bytes) -> Response | None:
        """Returns the leader's response; None if this dispatcher has become the leader."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if PASSED_ON in headers:  # never pass on twice
            raise Unavailable("the dispatchers do not agree on a leader at the moment", retry_after=1)
        passed = {name: value for name, value in headers.items() if name not in _NOT_PASSED}
        path, query = scope.get("raw_path", scope["path"].encode()), scope["query_string"]
        target = path.partition(b"?")[0] + (b"?" + query if query else b"")
        for _ in range(TRIES):
            if url is None:
                return None
            call = self._peers.client.request(
                scope["method"],
                exact_url(url, target),
                content=body,
                headers={"authorization": "", **passed, PASSED_ON: self._secret},
                timeout=Timeout(TIMEOUT, connect=2.0),
            )
            try:
                return await pass_back(call, "the leader", retry_after=1)
            except NotReached:
                await asyncio.sleep(0.1)  # until the leader is known to be offline
                url = await self._peers.turn()
        raise Unavailable("the leader cannot be reached", retry_after=1)


def replayed(body: bytes) -> Receive:
    """Returns a `receive` that yields a body again that was already read."""
    messages: list[Message] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": body, "more_body": False},
    ]

    async def receive() -> Message:
        return messages.pop() if len(messages) > 1 else messages[0]

    return receive

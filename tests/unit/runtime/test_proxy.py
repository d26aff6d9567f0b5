"""Passing a call on: the answer comes back, and a failure says whether anything was done."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.responses import Response

from edn.errors import Unavailable
from edn.http.proxy import NotReached, pass_back


def passed(answer: httpx.Response | Exception) -> Response:
    async def call() -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run() -> Response:
        return await pass_back(call(), "the other process", retry_after=3)

    return asyncio.run(run())


def test_status_body_and_the_headers_that_clients_need_come_back() -> None:
    fields = {"content-type": "text/plain", "location": "/x", "retry-after": "1", "x-internal": "secret"}
    response = passed(httpx.Response(201, content=b"made", headers=fields))
    assert (response.status_code, response.body) == (201, b"made")
    assert dict(response.headers) == {
        "content-type": "text/plain",
        "location": "/x",
        "retry-after": "1",
        "content-length": "4",
    }


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow")])
def test_a_call_that_was_not_sent_has_done_nothing(error: Exception) -> None:
    with pytest.raises(NotReached, match="the other process cannot be reached; nothing") as raised:
        passed(error)
    assert (raised.value.status, raised.value.retry_after) == (503, 3)


@pytest.mark.parametrize("error", [httpx.ReadTimeout("slow"), AttributeError("no getpeername")])
def test_a_call_that_was_not_answered_may_have_been_carried_out(error: Exception) -> None:
    with pytest.raises(Unavailable, match="may or may not") as raised:
        passed(error)
    assert not isinstance(raised.value, NotReached)
    assert raised.value.retry_after == 3

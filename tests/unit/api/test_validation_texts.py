"""Errors of pydantic in the words of all other errors: `<thing> must be <rule>, got <value>`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import httpx
import pytest
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field

from edn.http.asgi import install


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    precision: Annotated[float, Field(ge=0, le=1)] = 1.0
    mode: Literal["fixed", "model"] = "model"
    names: Annotated[list[str], Field(min_length=1)] = ["a"]
    secret: Annotated[str, Field(min_length=3)] = "long enough"


APP = FastAPI()
install(APP)


@APP.put("/thing")
async def thing(body: Body, limit: Annotated[int, Query(ge=1)] = 1) -> None:
    """Accepts a body."""


def detail_of(method: str, path: str, **request: Any) -> str:
    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(APP), base_url="http://app") as client:
            return await client.request(method, path, **request)

    answer = asyncio.run(call())
    assert 400 <= answer.status_code < 500
    detail: str = answer.json()["detail"]
    return detail


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"precision": 4}, '"precision" must be less than or equal to 1, got 4'),
        ({"precision": "x"}, '"precision" must be a valid number, got "x"'),
        ({"mode": "fixd"}, "\"mode\" must be 'fixed' or 'model', got \"fixd\""),
        ({"names": []}, '"names" must have at least 1 item, got 0'),
        ({"names": [1]}, '"names.0" must be a valid string, got 1'),
        ({"names": {"a": 1}}, '"names" must be a valid list'),
        ({"secret": "ab"}, '"secret" must have at least 3 characters'),
        ({"colour": "red"}, '"colour" is not permitted'),
    ],
)
def test_a_body_that_is_refused_says_what_must_be_and_what_was(body: dict[str, Any], detail: str) -> None:
    assert detail_of("PUT", "/thing", json=body) == detail


def test_a_parameter_a_missing_body_a_path_and_a_method_are_named() -> None:
    limit = detail_of("PUT", "/thing?limit=0", json={})
    assert limit == 'query parameter "limit" must be greater than or equal to 1, got "0"'
    assert detail_of("PUT", "/thing") == "a JSON body is required"
    assert detail_of("GET", "/thin") == "/thin does not exist; /docs lists all calls"
    assert detail_of("GET", "/thing") == "/thing does not allow GET"

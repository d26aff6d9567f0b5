"""How a call becomes requests and retries, without any I/O, so that both clients share it to the last line.

Theory of operation
-------------------
A *call* is one request and how to read its answer. A *plan* is a generator of calls that is sent each result,
for work that takes several. `converse` turns either into a generator of *steps*: `Send` (answer me with the
response, or with the exception that came instead) and `Wait`. A client performs steps and knows nothing else.

| what came                                   | then                                                      |
|---|---|
| success                                     | the result                                                |
| 429, 503                                    | again after `Retry-After`, or after the back-off          |
| nobody listens (certainly not received)     | again after the back-off                                  |
| the connection broke, time ran out          | again after the back-off, if the call is `repeatable`     |
| anything else, or the retries are used up   | the error                                                 |

A `DELETE` whose first try broke and whose second one finds nothing has done its work.

Where a network has several addresses, a client goes on to the next one after each failure, and the others are
tried at once, before the first pause.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx
import msgspec

from edn.client.problems import (
    ClientError,
    ProblemError,
    UnexpectedAnswerError,
    UnreachableError,
    read_problem,
)

T = TypeVar("T")

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_TRY_AGAIN = (429, 503)
#: this one cannot; another address may
_ELSEWHERE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request and how to read its answer."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    #: sending it twice does what sending it once does
    repeatable: bool = True
    #: statuses besides 2xx that `read` understands
    understood: frozenset[int] = frozenset()


Plan = Generator[Call[Any], Any, T]


@dataclass(frozen=True, slots=True)
class Send:
    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


Step = Send | Wait
Outcome = httpx.Response | httpx.TransportError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how patiently; `seconds` is the back-off, exponential, with jitter."""

    #: tries after the first one; 0 is none
    count: int = 4
    first_seconds: float = 0.1
    #: longest pause, and the longest `Retry-After` that is obeyed instead of reported
    longest_seconds: float = 20.0
    #: uniform in [0, 1); a test passes its own
    dice: Callable[[], float] = random.random

    def seconds(self, tried: int) -> float:
        """The pause after the `tried`-th try: between one half and all of a doubling step."""
        step = min(self.longest_seconds, self.first_seconds * 2.0 ** (tried - 1))
        return step * (0.5 + 0.5 * self.dice())


def reading(kind: type[T]) -> Callable[[httpx.Response], T]:
    """A reader of JSON answers of one type."""
    decoder = msgspec.json.Decoder(kind)

    def read(response: httpx.Response) -> T:
        try:
            return decoder.decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswerError(
                f"{response.request.method} {response.request.url} answered {response.status_code}, "
                f"but not with what this client expects: {error}"
            ) from error

    return read


def converse(
    work: Call[T] | Plan[T], retries: Retries, base_url: str, addresses: int = 1
) -> Generator[Step, Outcome, T]:
    """The steps of a call or plan; the generator returns the result or raises a `ClientError`."""
    if isinstance(work, Call):
        return (yield from _exchange(work, retries, base_url, addresses))
    try:
        call = next(work)
        while True:
            try:
                result = yield from _exchange(call, retries, base_url, addresses)
            except ClientError as error:
                call = work.throw(error)
            else:
                call = work.send(result)
    except StopIteration as done:
        final: T = done.value
        return final


def _exchange(call: Call[T], retries: Retries, base_url: str, addresses: int) -> Generator[Step, Outcome, T]:
    tried = 0
    #: addresses that were not asked yet
    others = addresses - 1
    broke = False
    while True:
        outcome = yield Send(call)
        tried += 1
        if isinstance(outcome, httpx.Response):
            if outcome.is_success or outcome.status_code in call.understood:
                return call.read(outcome)
            if broke and call.method == "DELETE" and outcome.status_code == 404:
                return call.read(httpx.Response(204, request=outcome.request))
            problem = _problem(outcome)
            pause = problem.retry_after if problem.retry_after is not None else retries.seconds(tried)
            again = problem.status in _TRY_AGAIN and pause <= retries.longest_seconds
            if again and problem.status == _ELSEWHERE and others:
                others, tried = others - 1, tried - 1
                continue
            if not again or tried > retries.count:
                raise problem
        else:
            assert outcome is not None, "a Send is answered with a response or an exception"
            received = not isinstance(outcome, _NEVER_SENT)
            broke = broke or received
            again = call.repeatable or not received
            pause = retries.seconds(tried)
            if again and others:
                others, tried = others - 1, tried - 1
                continue
            if not again or tried > retries.count:
                raise UnreachableError(base_url, _reason(outcome)) from outcome
        yield Wait(pause)


def _problem(response: httpx.Response) -> ProblemError:
    retry_after: float | None
    try:
        retry_after = max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:  # none, or a date: the back-off serves for both
        retry_after = None
    return read_problem(response.status_code, response.reason_phrase, response.content, retry_after)


def _reason(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return "no connection within the time allowed"
    if isinstance(error, httpx.ConnectError):
        return f"nobody answers there ({error})"
    if isinstance(error, httpx.TimeoutException):
        return "no answer within the time allowed"
    return f"the connection broke ({error or type(error).__name__})"

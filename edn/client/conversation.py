"""Requests and retries of a call, without I/O; shared by both clients.

Theory of operation
-------------------
A *call* is one request and a function that reads its answer. A *plan* is a generator of calls, for work that
needs several; it is sent the result of each. `converse` turns either into a generator of *steps*: `Send`,
which is answered with the response or the exception, and `Wait`. A client only performs steps.

| outcome                                          | next step                                        |
|---|---|
| success                                          | return the result                                |
| 429, 503                                         | retry after `Retry-After`, or after the back-off |
| connection refused (the request was not sent)    | retry after the back-off                         |
| connection broken, timeout                       | retry after the back-off, if `is_repeatable`     |
| anything else, or no retries left                | raise the error                                  |

A `DELETE` that is answered with 404 after a broken connection has succeeded.

If a network has several URLs, a client uses the next one after each failure; all of them are tried once
before the first back-off.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

import httpx
import msgspec

from edn.client import tls
from edn.client.encoding import encode
from edn.client.problems import (
    ClientError,
    ProblemError,
    UnexpectedAnswerError,
    UnreachableError,
    read_problem,
)

T = TypeVar("T")
U = TypeVar("U")

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_RETRIED = (429, 503)
#: another URL may be able to answer
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request, and the function that reads its answer."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    #: sending it twice has the effect of sending it once
    is_repeatable: bool = True
    #: any dispatcher may answer it, in turn
    is_spread: bool = False
    #: statuses besides 2xx that `read` accepts
    accepted_statuses: frozenset[int] = frozenset()

    def then(self, change: Callable[[T], U]) -> Call[U]:
        """Returns the same request with another result."""
        changed: Call[U] = replace(cast(Any, self), read=lambda response: change(self.read(response)))
        return changed


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
    """Number of retries, and their exponential back-off with jitter."""

    #: attempts after the first one
    count: int = 4
    first_seconds: float = 0.1
    #: longest back-off, and longest `Retry-After` that is waited for
    longest_seconds: float = 20.0
    #: random number in [0, 1)
    dice: Callable[[], float] = random.random

    def seconds(self, attempts: int) -> float:
        """Returns the back-off after the n-th attempt: between a half and all of a step that doubles."""
        step = min(self.longest_seconds, self.first_seconds * 2.0 ** (attempts - 1))
        return step * (0.5 + 0.5 * self.dice())


def reading(kind: type[T]) -> Callable[[httpx.Response], T]:
    """Returns a function that decodes JSON answers of one type."""
    decoder = msgspec.json.Decoder(kind)

    def read(response: httpx.Response) -> T:
        try:
            return decoder.decode(response.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswerError(
                f"{response.request.method} {response.request.url} answered {response.status_code}, "
                f"but the body is not what this client expects: {error}"
            ) from error

    return read


def request(
    method: str,
    path: str,
    kind: type[T],
    body: object = None,
    *,
    query: Mapping[str, str] | None = None,
    is_repeatable: bool = True,
) -> Call[T]:
    """Describes a request with a JSON body, if any, and a JSON answer of one type."""
    return Call(
        method=method,
        path=path,
        read=reading(kind),
        query=query or {},
        body=None if body is None else encode(body),
        is_repeatable=is_repeatable,
    )


def delete(path: str, *, query: Mapping[str, str] | None = None) -> Call[None]:
    """Describes a DELETE, whose answer has no body."""
    return Call(method="DELETE", path=path, query=query or {}, read=lambda _: None)


def converse(
    work: Call[T] | Plan[T], retries: Retries, base_url: str, urls: int = 1
) -> Generator[Step, Outcome, T]:
    """Yields the steps of a call or plan; returns its result, or raises a `ClientError`."""
    if isinstance(work, Call):
        return (yield from _exchange(work, retries, base_url, urls))
    try:
        call = next(work)
        while True:
            try:
                result = yield from _exchange(call, retries, base_url, urls)
            except ClientError as error:
                call = work.throw(error)
            else:
                call = work.send(result)
    except StopIteration as done:
        final: T = done.value
        return final


def _exchange(call: Call[T], retries: Retries, base_url: str, urls: int) -> Generator[Step, Outcome, T]:
    attempts = 0
    untried_urls = urls - 1
    is_broken = False
    while True:
        outcome = yield Send(call)
        attempts += 1
        error: ClientError
        if isinstance(outcome, httpx.Response):
            if outcome.is_success or outcome.status_code in call.accepted_statuses:
                return call.read(outcome)
            if is_broken and call.method == "DELETE" and outcome.status_code == 404:
                return call.read(httpx.Response(204, request=outcome.request))
            error = problem = problem_of(outcome)
            backoff = retries.seconds(attempts) if problem.retry_after is None else problem.retry_after
            can_retry = problem.status in _RETRIED and backoff <= retries.longest_seconds
            can_switch = problem.status == _UNAVAILABLE
        else:
            assert outcome is not None, "a Send is answered with a response or an exception"
            error = lost = unreachable(base_url, outcome)
            backoff = retries.seconds(attempts)
            is_sent = not isinstance(outcome, _NEVER_SENT)
            is_broken = is_broken or is_sent
            # Another attempt meets the same certificate.
            can_retry = (call.is_repeatable or not is_sent) and not (lost.is_tls and not untried_urls)
            can_switch = True
        if can_retry and can_switch and untried_urls:
            untried_urls, attempts = untried_urls - 1, attempts - 1
            continue
        if not can_retry or attempts > retries.count:
            raise error
        yield Wait(backoff)


def unreachable(url: str, outcome: httpx.TransportError) -> UnreachableError:
    """Returns the error of a request without an answer."""
    refused = tls.explain(outcome)
    error = UnreachableError(url, refused or _reason(outcome), is_tls=refused is not None)
    error.__cause__ = outcome
    return error


def problem_of(response: httpx.Response) -> ProblemError:
    """Returns the error of a refusal."""
    retry_after: float | None
    try:
        retry_after = max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:  # absent, or a date: use the back-off
        retry_after = None
    return read_problem(response.status_code, response.reason_phrase, response.content, retry_after)


def _reason(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return "no connection before the timeout"
    if isinstance(error, httpx.ConnectError):
        return f"connection failed ({error})"
    if isinstance(error, httpx.TimeoutException):
        return "no answer before the timeout"
    if isinstance(error, httpx.RemoteProtocolError):
        # A server closes a connection like this that speaks TLS or not as it does not expect.
        hint = "serves TLS, write https:// in its URL"
        if error.request.url.scheme == "https":
            hint = "requires a client certificate, give --tls-cert and --tls-key"
        return f"connection broken ({error}); if it {hint}"
    return f"connection broken ({error or type(error).__name__})"

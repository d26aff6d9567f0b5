"""What follows an attempt, with the arithmetic beside each case; and how an address fares over many."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edn_server.delivery import retry
from edn_server.delivery.circuit_breaker import HEALTHY, Health
from edn_server.delivery.retry import Decision, Failed
from edn_server.policies import BreakerLimits, RetryPolicy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600.0
POLICY = RetryPolicy(steps=(0.5, 1, 2, 4, 8, 16), give_up_seconds=72 * HOUR, refused_attempts=4)

# status, Retry-After, (attempts of the row, failures of the address, age of the row), chance → decision
DECISIONS = [
    (200, None, (1, 1, 0), 0.0, Decision("delivered")),
    (204, "99", (9, 9, 99 * HOUR), 0.0, Decision("delivered")),
    (299, None, (1, 1, 0), 0.0, Decision("delivered")),
    (410, "99", (1, 1, 0), 0.0, Decision("gone")),
    (410, None, (1, 1, 99 * HOUR), 0.0, Decision("gone")),
    (500, None, (1, 1, 0), 0.0, Decision("again", 0.5)),
    (None, None, (1, 1, 0), 0.0, Decision("again", 0.5)),
    (301, None, (1, 2, 0), 0.0, Decision("again", 1.0)),
    (500, None, (1, 4, 0), 0.5, Decision("again", 3.0)),  # step 4 is 4 s, shortened by half of a half
    (500, None, (1, 6, 0), 0.0, Decision("again", 16.0)),
    (500, None, (1, 10_000, 0), 0.0, Decision("again", 16.0)),  # the last step, again and again
    (500, None, (9, 1, 0), 0.0, Decision("again", 0.5)),  # the address's failures count, not the row's
    (400, None, (3, 9, 0), 0.0, Decision("again", 2.0)),  # refused: the row's own attempts count
    (400, None, (4, 9, 0), 0.0, Decision("dead")),  # the fourth of four
    (404, "99", (4, 4, 0), 0.0, Decision("dead")),
    (408, None, (4, 4, 0), 0.0, Decision("again", 4.0)),  # of the moment, not of the row
    (425, None, (9, 4, 0), 0.0, Decision("again", 4.0)),
    (429, None, (9, 4, 0), 0.0, Decision("again", 4.0)),
    (500, None, (1, 1, 72 * HOUR - 1), 0.0, Decision("again", 0.5)),
    (500, None, (1, 1, 72 * HOUR), 0.0, Decision("dead")),
    (429, "7", (1, 1, 0), 0.0, Decision("again", 7.0)),
    (429, "0", (1, 1, 0), 0.0, Decision("again", 0.5)),
    (503, " 120 ", (1, 1, 0), 0.9, Decision("again", 120.0)),
    (503, "999999999999999999999", (1, 1, 0), 0.0, Decision("again", 3600.0)),
    (503, "Thu, 01 Jan 2026 00:00:30 GMT", (1, 1, 0), 0.0, Decision("again", 30.0)),
    (503, "Fri, 01 Jan 2027 00:00:00 GMT", (1, 1, 0), 0.0, Decision("again", 3600.0)),
    (503, "Wed, 31 Dec 2025 00:00:00 GMT", (1, 1, 0), 0.0, Decision("again", 0.5)),
    (503, "soon", (1, 1, 0), 0.0, Decision("again", 0.5)),
    (503, "-5", (1, 1, 0), 0.0, Decision("again", 0.5)),
    (503, "1.5", (1, 1, 0), 0.0, Decision("again", 0.5)),
    (503, "1 Nov c026 21:925 +9999999999", (1, 1, 0), 0.0, Decision("again", 0.5)),  # OverflowError
    (503, "9" * 60_000, (1, 1, 0), 0.0, Decision("again", 3600.0)),
    (503, "0" * 63 + "7", (1, 1, 0), 0.0, Decision("again", 7.0)),
    (503, "٣", (1, 1, 0), 0.0, Decision("again", 0.5)),  # a digit, and not ASCII
    (503, "120, 60", (1, 1, 0), 0.0, Decision("again", 0.5)),
    (503, "inf", (1, 1, 0), 0.0, Decision("again", 0.5)),
    (503, "Fri, 31 Dec 9999 23:59:59 -2359", (1, 1, 0), 0.0, Decision("again", 3600.0)),
]


@pytest.mark.parametrize(("status", "retry_after", "after", "chance", "expected"), DECISIONS)
def test_what_follows_an_attempt(
    status: int | None,
    retry_after: str | None,
    after: tuple[int, int, float],
    chance: float,
    expected: Decision,
) -> None:
    attempt, failures, age = after
    known = Failed(attempt=attempt, failures=failures, age=age)
    assert retry.decide(POLICY, status, retry_after, known, chance=chance, now=NOW) == expected


HEADERS = st.one_of(
    st.none(),
    st.text(),
    st.integers().map(str),
    st.text(alphabet="0123456789 +-:,.", max_size=80),
    st.from_regex(
        r"[0-9]{1,5} (Jan|Nov|Dec) [0-9c]{1,12} [0-9]{1,4}:[0-9]{1,9}(:[0-9]{1,9})? [+-][0-9]{1,12}"
    ),
)


@example("1 Nov c026 21:925 +9999999999", 503, NOW)
@given(HEADERS, st.sampled_from([None, 400, 429, 500, 503]), st.datetimes(timezones=st.just(UTC)))
def test_any_retry_after_gives_a_delay_within_the_policys_bounds(
    header: str | None, status: int | None, now: datetime
) -> None:
    known = Failed(attempt=1, failures=1, age=0)
    decision = retry.decide(POLICY, status, header, known, chance=0.5, now=now)
    assert decision.kind == "again"
    assert POLICY.steps[0] / 2 <= decision.delay <= POLICY.longest_asked


def test_an_error_of_the_servers_own_is_given_up_like_a_refused_row() -> None:
    for attempt, expected in ((3, Decision("again", 2.0)), (4, Decision("dead"))):
        known = Failed(attempt=attempt, failures=9, age=0)
        assert retry.decide(POLICY, None, None, known, chance=0, now=NOW, broken=True) == expected


def test_what_a_sink_calls_permanent_is_not_tried_again() -> None:
    known = Failed(attempt=1, failures=1, age=0)
    assert retry.decide(POLICY, None, None, known, chance=0, now=NOW, permanent=True) == Decision("dead")


def test_a_dead_address_is_tried_seventy_odd_times_over_three_days_then_given_up() -> None:
    """The default steps on a clock of its own, with no luck: 1 + 12 steps up to an hour, then hourly."""
    policy = RetryPolicy()
    clock, attempts, decision = 0.0, 0, Decision("again")
    while decision.kind == "again":
        clock += decision.delay
        attempts += 1
        known = Failed(attempt=attempts, failures=attempts, age=clock)
        decision = retry.decide(policy, None, None, known, chance=0.0, now=NOW)
    # 0.5 + 1 + 2 + 4 + 8 + 16 + 32 + 60 + 120 + 300 + 600 + 1800 = 2943.5 s after 13 attempts;
    # then (259200 - 2943.5) / 3600 = 71.2, so 72 more.
    assert attempts == 13 + 72
    assert clock == 2943.5 + 72 * 3600
    assert decision == Decision("dead")


LIMITS = BreakerLimits(warn_seconds=100, disable_seconds=200)


def fail(health: Health, seconds: float, row: int = 1) -> Health:
    now = int(seconds * 1e6)
    return health.failed(LIMITS, row=row, now=now, next_attempt=now + 5, reason="no")


def test_an_address_that_fails_is_failing_then_warned_of_then_disabled() -> None:
    health = fail(HEALTHY, 1000)
    assert (health.state, health.standing(tried=True), health.failures, health.failing_since) == (
        "failing", "failing", 1, 1_000_000_000,
    )  # fmt: skip
    health = fail(health, 1099)
    assert health.warned is None
    health = fail(health, 1100)
    assert (health.state, health.warned) == ("failing", 1_100_000_000)
    health = fail(health, 1150)
    assert health.warned == 1_100_000_000
    health = fail(health, 1200)
    assert (health.state, health.disabled, health.disabled_since) == ("disabled", "failing", 1_200_000_000)


def test_one_success_forgets_all_failures_and_a_slow_one_keeps_its_standing() -> None:
    health = fail(fail(HEALTHY, 1000), 1100)
    assert health.succeeded(0.2) == HEALTHY
    assert HEALTHY.standing(tried=True) == "quick"
    assert HEALTHY.standing(tried=False) == "new"
    slow = health.succeeded(3.0)
    assert (slow.state, slow.standing(tried=True), slow.warned) == ("healthy", "slow", None)


def test_attempts_are_those_of_the_row_and_failures_those_of_the_address() -> None:
    health = fail(fail(HEALTHY, 1, row=7), 2, row=7)
    assert (health.attempts_of(7), health.attempts_of(8), health.failures) == (2, 0, 2)
    health = fail(health, 3, row=8)
    assert (health.attempts_of(7), health.attempts_of(8), health.failures) == (0, 1, 3)

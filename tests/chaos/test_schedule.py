"""A schedule is a function of its seed, and a full one has enough of everything."""

from __future__ import annotations

from collections import Counter

import pytest

from edn.runtime.timekeeper import Limits
from edn.tools.checker import Report, Verdict
from edn.tools.checker.verdicts import Counts
from tests.chaos.clients import Figures
from tests.chaos.run import Plan
from tests.chaos.schedule import DISPATCHER, FURTHEST_STEP, JUMP, Fault, draw
from tests.chaos.tally import FULL, FULL_MINUTES, Requirements, Tally

SERVERS = ["s1", "s2", "s3", "s4"]
DAY = 86_400
LEASE_SECONDS = 6


def _full(seed: int) -> list[Fault]:
    return draw(seed, seconds=FULL_MINUTES * 60, every=2.8, servers=SERVERS)


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another_one() -> None:
    assert _full(7) == _full(7)
    assert _full(7) != _full(8)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short = draw(7, seconds=60, every=2.8, servers=SERVERS)
    assert _full(7)[: len(short)] == short


@pytest.mark.parametrize("seed", range(20))
def test_a_full_schedule_has_enough_kills_and_every_kind_of_fault(seed: int) -> None:
    faults = _full(seed)
    kinds = Counter(fault.kind for fault in faults)
    assert kinds["kill"] + 2 * kinds["kill both"] >= FULL.kills
    assert min(kinds.values()) >= 2
    assert len(kinds) == 12
    killed = Counter(fault.target for fault in faults if fault.kind == "kill")
    assert set(killed) == {DISPATCHER, *SERVERS}
    assert min(killed.values()) >= 10


@pytest.mark.parametrize("seed", range(20))
def test_a_short_schedule_that_insists_kills_the_dispatcher_and_servers_often(seed: int) -> None:
    faults = draw(seed, seconds=30, every=2.0, servers=SERVERS, insistent=True)
    killed = Counter(
        "server" if fault.target in SERVERS else fault.target for fault in faults if fault.kind == "kill"
    )
    assert killed[DISPATCHER] >= 3
    assert killed["server"] >= 2
    assert killed.total() >= 7


@pytest.mark.parametrize("seed", range(20))
def test_every_schedule_has_clocks_that_jump_ahead_of_a_dispatcher_and_of_a_server(seed: int) -> None:
    for faults in (_full(seed), draw(seed, seconds=30, every=2.0, servers=SERVERS, insistent=True)):
        ahead = [one.target for one in faults if one.kind == "jump clock" and one.amount > 0]
        assert DISPATCHER in ahead
        assert set(ahead) & set(SERVERS)


@pytest.mark.parametrize("seed", range(20))
def test_faults_come_in_order_and_last_as_long_as_their_kind_may(seed: int) -> None:
    faults = _full(seed)
    times = [fault.at for fault in faults]
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < FULL_MINUTES * 60
    for fault in faults:
        match fault.kind:
            case "stop":
                assert 1 <= fault.seconds <= 5
            case "long stop":
                assert LEASE_SECONDS + 3 <= fault.seconds <= 15
            case "step clock":
                assert 0 < abs(fault.amount) <= FURTHEST_STEP
                assert fault.target
            case "jump clock":
                assert abs(fault.amount) == JUMP > 5 * DAY
                assert 2 <= fault.seconds <= 12 < Limits().trust
                assert fault.target
            case "half-close":
                assert fault.amount in (-1, 1)
            case "kill" | "kill both" | "cut":
                assert fault.seconds == 0


def test_the_replay_command_names_everything_that_the_schedule_depends_on() -> None:
    plan = Plan(seed=5, minutes=2, servers=3, defect="forget-the-join", quick=True, results=None)  # type: ignore[arg-type]  # never used
    assert plan.replay == (
        "python -m tests.chaos --seed 5 --minutes 2 --servers 3 --defect forget-the-join --quick"
    )


def _tally(verdict: Verdict, kills: int) -> Tally:
    report = Report(
        verdict=verdict,
        counts=Counts(operations=1, subscriptions=1, events=1, posts=1),
        faults={},
        informative=[],
        violations=[],
        undecided={},
    )
    clients = Figures(Counter({("change", "ok"): 6}), acknowledged_events=50)
    faults = Counter({("kill", "server"): kills, ("stop", "server"): 90})
    return Tally(1, "", faults, clients=clients, report=report, quiet_seconds=1.0)


@pytest.mark.parametrize(
    ("verdict", "kills", "code"),
    [
        (Verdict.HOLDS, 10, 0),
        (Verdict.HOLDS, 9, 3),  # too few to mean anything
        (Verdict.UNKNOWN, 10, 3),
        (Verdict.VIOLATED, 10, 1),
        (Verdict.VIOLATED, 9, 1),
    ],
)
def test_only_a_verdict_that_holds_after_enough_faults_is_a_success(
    verdict: Verdict, kills: int, code: int
) -> None:
    assert _tally(verdict, kills).exit_code(Requirements(10, 50, 6)) == code


@pytest.mark.parametrize(
    ("required", "short"),
    [
        (Requirements(10, 50, 6), []),
        (Requirements(10, 51, 6), ["acknowledged events: 50 of 51"]),
        (
            Requirements(11, 50, 7),
            ["kills: 10 of 11", "acknowledged subscribe, unsubscribe and change: 6 of 7"],
        ),
    ],
)
def test_what_is_short_is_named(required: Requirements, short: list[str]) -> None:
    tally = _tally(Verdict.HOLDS, 10)
    assert tally.shortfalls(required) == short
    assert all(line in tally.table(required) for line in short)


@pytest.mark.parametrize(
    ("good", "bad", "over", "short"),
    [
        (8, 2, 100, []),
        (8, 3, 0, ["resume that succeeded where no fault explains a failure: 8 of 11"]),
        (4, 0, 0, ["resume that succeeded: 4 of 5"]),
        (0, 0, 0, ["resume that succeeded: 0 of 5"]),
    ],
)
def test_a_kind_of_call_that_is_hardly_exercised_is_named(
    good: int, bad: int, over: int, short: list[str]
) -> None:
    tally = _tally(Verdict.HOLDS, 10)
    counts = {"ok": good, "fail": bad, "over": over, "unknown": 50, "unreached": 50}
    tally.clients.outcomes.update({("resume", outcome): count for outcome, count in counts.items()})
    required = Requirements(10, 50, 6, {"resume": 5})
    assert tally.shortfalls(required) == short
    assert tally.exit_code(required) == (3 if short else 0)
    calls = good + bad + over + 100
    assert f"{calls} calls, {good} succeeded" in tally.table(required)


@pytest.mark.parametrize(("disabled", "letters", "code"), [(0, 0, 0), (1, 0, 1), (0, 2, 1), (0, None, 1)])
def test_an_address_that_was_disabled_or_given_up_before_its_time_is_no_success(
    disabled: int, letters: int | None, code: int
) -> None:
    tally = _tally(Verdict.HOLDS, 10)
    tally.disabled, tally.dead_letters = disabled, letters
    assert tally.exit_code(Requirements(0, 0, 0)) == code


def test_a_network_that_never_came_to_rest_is_no_success() -> None:
    tally = _tally(Verdict.HOLDS, 10)
    tally.quiet_seconds = None
    assert tally.exit_code(Requirements(0, 0, 0)) == 1


def test_a_run_without_a_report_is_no_success() -> None:
    tally = _tally(Verdict.HOLDS, 10)
    tally.report = None
    assert tally.exit_code(Requirements(0, 0, 0)) == 1
    assert "could not be checked" in tally.table(Requirements(0, 0, 0))

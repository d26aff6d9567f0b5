"""The delivery benchmark finds what is missing and surplus, reads every format, and compares honestly."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from typer.testing import CliRunner

from edn.tools.bench.command import app
from edn.tools.bench.delivery import receiver
from edn.tools.bench.delivery.load import Arrivals, Phase, Trail
from edn.tools.bench.delivery.peers import system
from edn.tools.bench.delivery.receiver import Records
from edn.tools.bench.delivery.results import Cost, FloorCost, Outcome, Timeline
from edn.tools.bench.delivery.usage import Usage
from edn.tools.bench.delivery.workload import Workload, address_of, draw_points, host

#: two addresses; the first has two subscriptions
WORKLOAD = Workload(
    lo=np.array([[0.0, 0.0], [0.5, 0.5], [0.0, 0.0]]),
    hi=np.array([[1.0, 1.0], [1.0, 1.0], [0.4, 0.4]]),
    owners=np.array([0, 1, 0]),
    addresses=2,
)
#: matches subscriptions 0 and 2, 0 and 1, 0
POINTS = np.array([[0.4, 0.1], [0.5, 1.0], [0.45, 0.45]])


def arrivals(*rows: tuple[str, int, int]) -> Arrivals:
    """Of rows of an event's id, an address and a number of matches."""
    records = Records(
        [id for id, _, _ in rows],
        array("i", [address for _, address, _ in rows]).tobytes(),
        array("i", [matches for _, _, matches in rows]).tobytes(),
        array("d", [1.0] * len(rows)).tobytes(),
        len(rows),
    )
    return Arrivals.read([records], {"a": 0, "b": 1, "c": 2}, WORKLOAD.addresses)


def test_the_expected_matches_are_counted_by_event_and_address() -> None:
    expected = WORKLOAD.expect(POINTS)
    assert expected.keys.tolist() == [0, 2, 3, 4]
    assert expected.matches.tolist() == [2, 1, 1, 1]
    assert expected.total_matches == 5
    assert expected.only(np.array([1])).keys.tolist() == [3]


ALL = [("a", 0, 2), ("b", 0, 1), ("b", 1, 1), ("c", 0, 1)]


@pytest.mark.parametrize(
    ("rows", "missing", "surplus"),
    [
        (ALL, 0, 0),
        # two servers share the matches of an address
        ([("a", 0, 1), ("a", 0, 1), *ALL[1:]], 0, 0),
        (ALL[1:], 2, 0),
        ([("a", 0, 1), *ALL[1:]], 1, 0),
        ([*ALL, ("c", 0, 1)], 0, 1),
        ([*ALL, ("c", 1, 1)], 0, 1),
        ([*ALL, ("unknown", 1, 1)], 0, 1),
        ([], 5, 0),
    ],
)
def test_missing_and_surplus_matches_are_found(
    rows: list[tuple[str, int, int]], missing: int, surplus: int
) -> None:
    expected = WORKLOAD.expect(POINTS)
    assert arrivals(*rows).compare(expected, lists_matches=True) == (missing, surplus)


@pytest.mark.parametrize(
    ("rows", "missing", "surplus"),
    [
        ([(id, address, 0) for id, address, _ in ALL], 0, 0),
        ([("a", 0, 0), *((id, address, 0) for id, address, _ in ALL)], 0, 0),
        ([(id, address, 0) for id, address, _ in ALL[1:]], 1, 0),
        ([("c", 0, 0), *((id, address, 0) for id, address, _ in ALL)], 0, 1),
        ([("c", 1, 0), *((id, address, 0) for id, address, _ in ALL)], 0, 1),
    ],
)
def test_entries_are_compared_where_matches_are_not_listed(
    rows: list[tuple[str, int, int]], missing: int, surplus: int
) -> None:
    expected = WORKLOAD.expect(POINTS)
    assert arrivals(*rows).compare(expected, lists_matches=False) == (missing, surplus)


def test_a_drawn_workload_matches_as_many_as_it_should() -> None:
    rng = np.random.default_rng(1)
    expected = Workload.draw(rng, 10_000, 1000, 100).expect(draw_points(rng, 200))
    assert 90 < expected.total_matches / 200 < 100  # squares at the border are smaller
    single = Workload.draw(rng, 1, 1, 100)
    assert single.expect(draw_points(rng, 50)).total_matches == 50


@pytest.mark.parametrize("address", [0, 254, 255, 256, 65_535, 99_999])
def test_every_address_is_an_origin_of_its_own(address: int) -> None:
    assert address_of(host(address)) == address
    assert address_of("127.0.0.1") == -1


SOAP = b"""<s:Envelope xmlns:s="s"><s:Body><w:Notify xmlns:w="w" xmlns:e="e"><e:notifications>
<e:event topic="t" id="a" time="x"><x>1</x><e:Match subscription="n1"/><e:Match subscription="n2"/></e:event>
<e:event topic="t" id="b" time="x"><e:Match subscription="n1"/></e:event>
</e:notifications></w:Notify></s:Body></s:Envelope>"""


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            b"/webhook",
            b'{"notifications":[{"topic":"t","event":{"id":"a","attributes":{}},"matches":[{},{}]}]}',
            [("a", 2)],
        ),
        (b"/cloudevents", b'[{"id":"a","specversion":"1.0"},{"id":"b"}]', [("a", 0), ("b", 0)]),
        (b"/soap", SOAP, [("a", 2), ("b", 1)]),
    ],
)
def test_every_format_is_read(path: bytes, body: bytes, expected: list[tuple[str, int]]) -> None:
    assert receiver.READ[path](body) == expected


def cost(
    name: str, load: str = "calm 10/s", *, cpu: float = 1.0, seconds: float = 1.0, missing: int = 0
) -> Cost:
    phase = Phase(
        events=10,
        posts=100,
        entries=200,
        matches=200,
        seconds=seconds,
        latencies=np.linspace(0, 2 * seconds, 101),
        usage=Usage(seconds, {"process": cpu}, 0.0),
        memory_mb=1.0,
        missing=missing,
        surplus=0,
        trail=Trail([], *([np.zeros(0)] * 3)),
    )
    return Cost.of(name, load, 20, [phase], {"process": 0.1})


def test_costs_are_per_post_and_per_entry() -> None:
    one = cost("edn", cpu=0.5, seconds=2.0)
    assert (one.cpu_us_per_post, one.cpu_us_per_entry) == pytest.approx((5000, 2500))
    assert one.idle_us_per_post == pytest.approx(2000)
    assert (one.posts_per_second, one.entries_per_second, one.events_per_second) == (50, 100, 5)
    assert (one.p50, one.p99) == pytest.approx((2000, 3960))


def test_the_better_durable_peer_is_compared_with() -> None:
    floor = [
        FloorCost(20, "bare", "flat out", 10.0, 1.0),
        FloorCost(20, "both", "flat out", 1000.0, 1.0),
        FloorCost(20, "both", "calm 10/s", 2000.0, 1.0),
    ]
    costs = [
        cost("edn", cpu=1.0),
        cost("pg", cpu=0.5, seconds=2.0),
        cost("redis", cpu=0.8, seconds=0.5),
        cost("redis-everysec", cpu=0.1, seconds=0.1),
        cost("edn", "flat out"),
        cost("pg", "flat out", cpu=0.1, missing=1),
    ]
    outcome = Outcome("webhook", 1, costs, floor)
    calm, flat = outcome.verdicts()
    assert "5.0 × the floor's CPU per POST at this load, 10.0 × the floor's flat out" in calm
    assert "5.0 × the floor's CPU per entry at this load" in flat
    assert "2.00 × pg's CPU per entry" in calm
    assert "2.00 × redis's p50" in calm
    assert "pg" not in flat  # it did not deliver everything
    assert outcome.failures() == ["pg, 20 addresses: 1 matches missing, 0 surplus"]
    assert not outcome.is_complete


def test_steps_of_events_are_in_the_order_of_their_medians() -> None:
    timeline = Timeline.of("calm", [{"arrived": 3.0, "logged": 1.0}, {"arrived": 5.0, "logged": 2.0}])
    assert list(timeline.steps.items()) == [("logged", 1.5), ("arrived", 4.0)]


def refused(*arguments: str) -> str:
    """Returns the error of a command that is refused, in one line."""
    result = CliRunner().invoke(app, ["delivery", *arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--systems", "edn,kafka"], "must be some of edn, edn-database, pg, redis, floor, got kafka"),
        (["--sink", "pigeon"], "--sink must be one of webhook, cloudevents, soap, sse, got pigeon"),
        (["--systems", "edn", "--fairness", "--addresses", "10"], "--addresses must be at least 20"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_without_the_packages_of_the_peers_the_command_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "find_spec", lambda name: None if name == "arq" else object())
    assert "arq must be installed for the peers; run `make bench-peers`" in refused("--systems", "redis")


def test_without_a_database_the_command_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.shutil, "which", lambda name: None)
    assert "redis-server is not installed; run `make bench-peers`" in refused("--systems", "redis")

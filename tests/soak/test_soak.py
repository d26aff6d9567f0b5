"""How growth is judged, and a short run of everything; `make soak` runs for half an hour."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.growth import TOLERANCES, judge, slope
from tests.soak.page import page, table
from tests.soak.sampling import FIGURES, Samples, database_bytes

MIB = float(1 << 20)
ROOT = Path(__file__).resolve().parents[2]
#: half an hour, a sample every five seconds
TIMES = [5.0 * number for number in range(360)]


def _noisy(values: list[float]) -> list[float]:
    """With noise and a few large outliers."""
    chance = random.Random(3)
    return [
        value + chance.gauss(0, 2 * MIB) + (60 * MIB if not place % 50 else 0)
        for place, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "grows"),
    [
        ([200 * MIB] * 360, False),
        (
            [min(200, 100 + place) * MIB for place in range(360)],
            False,
        ),  # a cache that fills in the first half
        ([200 * MIB - place * MIB / 10 for place in range(360)], False),
        ([200 * MIB + place * MIB / 10 for place in range(360)], True),  # 72 MiB an hour
        ([200 * MIB + (place >= 200) * (place - 200) * MIB / 5 for place in range(360)], True),
    ],
)
def test_growth_in_the_second_half_is_noticed_through_noise(values: list[float], grows: bool) -> None:
    assert judge("s1", "rss", TIMES, _noisy(values)).grows is grows


def test_a_short_run_is_judged_leniently() -> None:
    short, growing = TIMES[:40], [100.0 + place for place in range(40)]
    assert not judge("s1", "descriptors", short, growing).grows
    assert judge("s1", "descriptors", TIMES, [100.0 + place / 4 for place in range(360)]).grows


def test_the_slope_is_that_of_the_median_pair() -> None:
    assert slope([0, 1, 2, 3, 4], [0, 2, 4, 6, 1000]) == 2.0
    assert slope([0, 1, 2, 3, 4], [5, 5, 5, 5, 500]) == 0.0
    assert slope([1], [1]) == 0.0


def test_every_figure_has_a_tolerance_and_a_place_on_the_page() -> None:
    assert set(TOLERANCES) == set(FIGURES)
    samples = Samples(1, Path())
    samples.times, samples.figures = TIMES, {name: [1.0] * 360 for name in FIGURES}
    found = [judge("s1", name, TIMES, samples.figures[name]) for name in FIGURES]
    written = page("a <run>", found, {"s1": samples})
    assert "a &lt;run&gt;" in written
    assert written.count("<polyline") == len(FIGURES)
    assert "GROWS" not in table(found)


def test_databases_are_counted_with_their_logs(tmp_path: Path) -> None:
    for name, size in (("server.db", 10), ("server.db-wal", 5), ("audit.jsonl", 100)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert database_bytes(tmp_path) == 15


@pytest.mark.slow
def test_a_short_soak_does_every_operation(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.soak",
        "--minutes",
        "1.5",
        "--seed",
        "1",
        "--results",
        str(tmp_path),
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-3000:]
    assert (tmp_path / "soak.html").exists()

"""The benchmarks run, at tiny sizes, and tell the truth about whether answers agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from edn.tools.bench import command
from edn.tools.bench import kernels as kernels_bench
from edn.tools.bench.command import app
from edn.tools.bench.cuts import PRECISIONS, Comparison, CutQuality, compare, over_seeds
from edn.tools.bench.peers import brute_force, same
from edn.tools.bench.report import interleaved, machine


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_kernels_are_compared_with_every_peer_and_agree() -> None:
    results = json.loads(run("kernels", "--quick", "--json"))
    fields = "kernel servers subscriptions dimensions peer us_per_event peer_us_per_event ratio exact"
    assert {" ".join(result) for result in results} == {fields}
    assert {(result["kernel"], result["peer"]) for result in results} >= {
        ("match", "rtree"),
        ("match", "numpy"),
        ("route", "rtree"),
    }
    for result in results:
        assert result["exact"] is True
        assert result["ratio"] == pytest.approx(result["peer_us_per_event"] / result["us_per_event"])


def test_a_kernel_that_errs_is_not_called_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(lo: np.ndarray, hi: np.ndarray, points: np.ndarray):  # type: ignore[no-untyped-def]  # a stand-in
        starts, ids = brute_force(lo, hi, points)()
        assert len(ids) > 0
        return lambda: (np.minimum(starts, len(ids) - 1), ids[:-1])

    monkeypatch.setattr(kernels_bench.peers, "brute_force", forgetful)
    results = {
        result.peer: result.exact
        for result in kernels_bench.match_cell(300, 2, 10, seed=1, repeats=5, turn=0.0)
    }
    assert results["numpy"] is False
    assert results["rtree"] is True


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (([0, 2, 3], [5, 9, 1]), True),
        (([0, 2, 3], [9, 5, 1]), True),
        (([0, 2, 3], [9, 1, 5]), False),
        (([0, 1, 3], [5, 9, 1]), False),
        (([0, 2, 3], [5, 8, 1]), False),
        (([0, 2, 2], [5, 9]), False),
    ],
)
def test_answers_are_the_same_when_each_point_has_the_same_ids(
    other: tuple[list[int], list[int]], expected: bool
) -> None:
    one = np.array([0, 2, 3]), np.array([9, 5, 1])
    assert same(one, (np.array(other[0]), np.array(other[1]))) is expected


def test_scaling_is_measured_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "scaling.png"
    results = json.loads(run("scaling", "--quick", "--json", "--plot", str(picture)))
    assert {result["dimensions"] for result in results} >= {2, 4, 8, 16, 32}
    assert all(result["us_per_event"] > 0 and result["bytes"] > 0 for result in results)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_one_large_index_is_measured() -> None:
    result = json.loads(run("million", "--quick", "--json"))
    assert result["found_per_event"] > 0
    assert result["longest_rebuild_ms"] > 0
    assert result["longest_quiet_ms"] > 0


def test_a_cell_over_several_seeds_is_won_tied_or_lost_by_its_standard_error() -> None:
    def verdict(ours: list[float], others: list[float]) -> str:
        return Comparison("w", "random", 0.1, "level", others, ours).verdict

    # differences -0.1, -0.1, -0.1: no spread at all
    assert verdict([0.4, 0.5, 0.6], [0.5, 0.6, 0.7]) == "win"
    assert verdict([0.5, 0.6, 0.7], [0.4, 0.5, 0.6]) == "loss"
    assert verdict([0.5, 0.6], [0.5, 0.6]) == "tie"
    # differences +0.1, -0.08, +0.1: mean 0.04, standard error 0.06
    assert verdict([0.5, 0.42, 0.5], [0.4, 0.5, 0.4]) == "tie"


def test_ways_to_cut_are_compared_seed_by_seed() -> None:
    def row(way: str, ratios: list[float]) -> CutQuality:
        return CutQuality("w", "random", 10.0, way, dict.fromkeys(PRECISIONS, ratios))

    first = [row("split level", [0.5]), row("level", [0.4]), row("waste", [0.3])]
    second = [row("split level", [0.6]), row("level", [0.9]), row("waste", [0.5])]
    compared = compare(over_seeds([first, second]))
    assert [cell.precision for cell in compared] == [0.1, 0.25, 0.5]
    # the mean of "split level" is the lower one
    assert {cell.other for cell in compared} == {"split level"}
    assert compared[0].differences == pytest.approx([-0.2, -0.1])


def test_people_get_a_table_that_names_the_machine() -> None:
    table = run("million", "--quick")
    assert "Python 3" in table
    assert machine().split(",")[0].split()[0] in table


def test_runs_take_turns() -> None:
    turns: list[str] = []
    runs = {"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}
    seconds = interleaved(runs, repeats=3, at_least=0.0)
    # once to warm up, then in rounds
    assert "".join(turns) == "ab" + "ab" * 3
    assert set(seconds) == {"a", "b"}


def test_a_plot_that_cannot_be_drawn_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["scaling", "--plot", str(tmp_path / "plot.png")])
    assert result.exit_code == 2
    assert "edn[bench]" in result.output

"""The parts of the bitmap matcher, and how engines are named and compiled."""

from __future__ import annotations

import bisect
import os
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edn.index.engines
from edn.errors import InvalidInput
from edn.index import Matcher, compilation, engine_name, known_engines, new_matcher, warm
from edn.index.bins import LEAST, Bins
from edn.index.clustering import cluster
from edn.index.kernels import FAN, code_bounds, code_points, find_bin
from edn.index.scan import ScanMatcher

numbers = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(allow_nan=False),
    st.sampled_from([-np.inf, np.inf, LEAST, -LEAST, -0.0]),
)


@settings(max_examples=200, deadline=None)
@given(
    bounds=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=400),
    extra=st.lists(numbers, max_size=20),
)
def test_codes_decide_as_the_bounds_do_wherever_they_are_certain(
    bounds: list[tuple[float, float]], extra: list[float]
) -> None:
    lo, hi = (np.array(side).reshape(-1, 1) for side in zip(*bounds, strict=True))
    bins = Bins.of(lo, hi)
    low, high = np.empty(lo.shape, np.uint8), np.empty(lo.shape, np.uint8)
    code_bounds(lo, hi, bins.edges, bins.strides, low, high)
    points = np.array([bound for pair in bounds[:20] for bound in pair] + extra).reshape(-1, 1)
    codes, values = np.empty(points.shape, np.uint8), np.empty(points.shape)
    code_points(points, np.array([0]), bins.edges, bins.strides, codes, values)
    for row, (a, b) in enumerate(bounds):
        for x, code in zip(points[:, 0].tolist(), codes[:, 0].tolist(), strict=True):
            inside = a <= x <= b
            if low[row, 0] < code < high[row, 0]:
                assert inside, f"{x} is coded as certainly inside of [{a}, {b}]"
            elif not low[row, 0] <= code <= high[row, 0]:
                assert not inside, f"{x} is coded as outside of [{a}, {b}]"


def test_few_distinct_values_are_coded_so_that_the_doubles_are_never_asked() -> None:
    rng = np.random.default_rng(1)
    value = rng.integers(0, 60, (1000, 1)).astype(np.float64)
    bins = Bins.of(value, value)
    low, high = np.empty(value.shape, np.uint8), np.empty(value.shape, np.uint8)
    code_bounds(value, value, bins.edges, bins.strides, low, high)
    codes, values = np.empty(value.shape, np.uint8), np.empty(value.shape)
    code_points(value, np.array([0]), bins.edges, bins.strides, codes, values)
    certain = (low < codes.T) & (high > codes.T)
    possible = (low <= codes.T) & (high >= codes.T)
    assert (certain == possible).all()
    assert (certain == (value == value.T)).all()


@settings(max_examples=100, deadline=None)
@given(values=st.lists(numbers, max_size=600), x=numbers)
def test_a_bin_is_the_number_of_edges_at_or_below(values: list[float], x: float) -> None:
    column = np.array([*values, 0.0]).reshape(-1, 1)
    edges = Bins.of(column, column).edges[0]
    real = edges[FAN:][~np.isnan(edges[FAN:])].tolist()
    assert real[0] == LEAST
    assert real == sorted(set(real))
    assert find_bin(x, edges) == bisect.bisect_right(real, x)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 127, 128, 1000, 4097])
@pytest.mark.parametrize("columns", [0, 1, 5])
def test_clustering_loses_and_doubles_nothing(count: int, columns: int) -> None:
    rng = np.random.default_rng(count)
    low, high = rng.integers(0, 256, (2, count, columns)).astype(np.uint8)
    assert sorted(cluster(low, high).tolist()) == list(range(count))


def test_clustering_brings_together_what_lies_together() -> None:
    rng = np.random.default_rng(2)
    # 16 places in 2 columns, 64 small rectangles at each, shuffled
    place = rng.permutation(np.repeat(np.arange(16), 64))
    low = np.stack((place % 4 * 60, place // 4 * 60), axis=1).astype(np.uint8)
    high = (low + rng.integers(0, 10, low.shape)).astype(np.uint8)
    blocks = place[cluster(low, high)].reshape(16, 64)
    assert (blocks == blocks[:, :1]).all(), "a block mixes places"


def test_engines_are_found_by_name_and_by_uri() -> None:
    for engine in known_engines():
        for name in (engine, f"urn:edn:matcher:{engine}"):
            matcher = new_matcher(name, 3)
            assert isinstance(matcher, Matcher)
            assert matcher.dimensions == 3
            assert len(matcher) == 0


@pytest.mark.parametrize(
    "name", ["quadtree", "", "urn:edn:matcher:", "urn:edn:matcher:quadtree", "Bitmap", "urn:bitmap"]
)
def test_an_unknown_engine_is_refused_with_the_known_ones(name: str) -> None:
    for call in (engine_name, lambda engine: new_matcher(engine, 2)):
        with pytest.raises(InvalidInput) as refused:
            call(name)
        assert refused.value.detail.startswith("the engine must be one of bitmap, rtree, scan")
        assert refused.value.detail.endswith(f"got {name!r}")


def test_a_matcher_has_no_fewer_than_no_dimensions() -> None:
    with pytest.raises(InvalidInput):
        new_matcher("bitmap", -1)


def test_an_installed_package_can_bring_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = EntryPoints([EntryPoint("their-scan", "edn.index.scan:ScanMatcher", "edn.matchers")])
    monkeypatch.setattr(edn.index.engines, "entry_points", installed.select)
    assert known_engines() == ("bitmap", "rtree", "scan", "xpath", "their-scan")
    assert engine_name("urn:edn:matcher:their-scan") == "their-scan"
    assert isinstance(new_matcher("their-scan", 2), ScanMatcher)
    assert isinstance(new_matcher("urn:edn:matcher:their-scan", 2), ScanMatcher)


def test_warming_loads_every_kernel_and_compiles_none_later() -> None:
    from edn.index.sieve import sieve

    warm()
    compiled = list(sieve.signatures)  # type: ignore[attr-defined]  # a kernel is more than the function it looks like
    matcher = new_matcher("bitmap", 4)
    matcher.insert(np.arange(3), np.zeros((3, 4)), np.ones((3, 4)))
    matcher.match(np.asfortranarray(np.zeros((5, 4))))
    assert list(sieve.signatures) == compiled  # type: ignore[attr-defined]  # the same


def test_compiled_code_is_only_kept_where_nobody_else_can_put_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = compilation.private_folder()
    assert folder is not None
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert compilation.private_folder() is None
    folder.rmdir()
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    assert compilation.private_folder() is None


def test_kernels_compile_where_no_usual_folder_can_be_written(tmp_path: Path) -> None:
    """As from a package that is installed read-only, for a user without a home."""
    program = """
from edn.index.compilation import kernel
@kernel("i8(i8)")
def twice(x):
    return 2 * x
assert twice(21) == 42
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    # leaves numba no folder but the one that nobody named
    environment |= {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, script], check=True, env=environment, timeout=120)
    assert list(tmp_path.glob("edn-kernels-*/*/*.nbi")), "the compiled code was not kept"


def test_compiled_code_can_be_kept_for_a_user_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs under a number of its own."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert compilation.private_folder() == tmp_path / f"edn-kernels-{os.getuid()}"

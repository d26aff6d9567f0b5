"""Experiments at tiny sizes: outcomes fit claims and figures; the page covers all published claims."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from edn.errors import InvalidInput
from evaluation import document, figures, results
from evaluation.command import Places, app, choose, publish
from evaluation.experiment import Experiment, Outcome, judge
from evaluation.experiments import ALL
from evaluation.suites import EDN, EVERY, SUITES, Suite

pytest.importorskip("sklearn", reason="K-means needs the extra `spark`")

#: the others run in `make test-all` only
EVERY_DAY = {"figure-12", "locality", "siena-merging", "siena-delegation", "siena-relations"}
RUN = [one for one in EVERY if not one.live]
#: the lines of the published evaluation
LINES = (
    "Figure 3", "Figure 4", "Figure 5", "Figure 6", "load-balancing factor", "30/50/100 % offline",
    "2–10 dimensions", "Table I", "Figure 7", "Figure 8", "Figure 9", "Figure 10", "locality x", "Figure 12",
    "Figures 12–15", "Figure 16", "Figure 17",
)  # fmt: skip


def silent(done: int, total: int, what: str) -> None:
    """Reports no progress."""


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_the_published_evaluation_has_claims(line: str) -> None:
    assert [claim for one in ALL if one.line == line for claim in one.claims]


def test_names_are_unique_and_every_claim_has_a_reading() -> None:
    assert len({one.name for one in EVERY}) == len(EVERY)
    for one in EVERY:
        for claim in one.claims:
            assert claim.readings, claim.text


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in EVERY_DAY else [pytest.mark.slow])
        for one in RUN
    ],
)
def test_a_tiny_run_can_be_kept_read_judged_and_drawn(one: Experiment, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    record = results.run(one, "tiny", [0, 1], lambda done, total, what: steps.append((done, total)))
    assert all(0 <= done < total for done, total in steps)
    assert steps == sorted(steps)
    results.write(record, tmp_path)
    kept = results.read(one, tmp_path)
    assert kept == record
    for claim in one.claims:
        for judged in judge(claim, kept.outcomes):
            assert len(judged.ours) == len(judged.spread) >= 1
    figures.draw(one.draw, kept.outcomes, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    page = document.text([(one, kept)], [], Path("figures"))
    for claim in one.claims:
        assert claim.text in page


@pytest.mark.parametrize("name", ["figure-3", "siena-thousand-sites", "siena-merging"])
def test_a_seed_gives_the_same_again(name: str) -> None:
    [one] = [one for one in EVERY if one.name == name]
    first = results.run(one, "tiny", [5], silent)
    assert results.run(one, "tiny", [5], silent).outcomes == first.outcomes
    assert results.run(one, "tiny", [6], silent).outcomes != first.outcomes


def test_the_command_runs_what_is_named_and_writes_results_figures_and_a_page(tmp_path: Path) -> None:
    words = ["load-factor", "--tiny", "--seeds", "2", "--out", str(tmp_path)]
    told = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert told.exit_code == 0
    [record] = json.loads(told.stdout)
    assert (record["experiment"], record["scale"], record["seeds"]) == ("load-factor", "tiny", [0, 1])
    assert json.loads((tmp_path / "results" / "load-factor.json").read_text()) == record
    assert (tmp_path / "figures" / "load-factor.png").exists()
    page = (tmp_path / "evaluation.md").read_text()
    assert "figures/load-factor.png" in page
    assert "Not run here: `figure-3`" in page
    again = CliRunner().invoke(app, ["--render", "--out", str(tmp_path)], catch_exceptions=False)
    assert "load-factor" in again.stdout
    assert (tmp_path / "evaluation.md").read_text() == page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["figure-99"], 'experiment "figure-99" does not exist; known experiments: figure-3, '),
        (["--quick", "--full"], "--quick, --full and --tiny are mutually exclusive"),
        (["figure-3", "--seeds", "0"], "--seeds must be 1 or more, got 0"),
        (["--animate"], "--animate and --scenario must follow siena, got nothing"),
        (["siena", "--scenario", "no/such.file"], "scenario must be a readable file, got no/such.file"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_can(words: list[str], said: str) -> None:
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 2
    assert said in outcome.stderr


@pytest.mark.parametrize("module", ["matplotlib", "sklearn"])
def test_what_is_not_installed_is_said_before_anything_runs(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    outcome = CliRunner().invoke(app, ["load-factor", "--tiny", "--out", str(tmp_path)])
    assert outcome.exit_code == 2
    assert 'is not installed; run `pip install "edn[spark]"`' in outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_scale_and_no_seeds_are_refused() -> None:
    with pytest.raises(InvalidInput, match='scale must be one of tiny, quick, full, got "huge"'):
        results.run(ALL[0], "huge", [0], silent)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="seeds must be 1 or more, got 0"):
        results.run(ALL[0], "tiny", [], silent)


CLAIMS = [f"C{number}" for number in range(1, 25)]


@pytest.mark.parametrize("number", CLAIMS)
def test_every_claim_of_siena_is_judged_strictly(number: str) -> None:
    [siena] = [suite for suite in SUITES if suite.name == "siena"]
    found = [
        claim for one in siena.experiments for claim in one.claims if claim.text.startswith(f"{number}.")
    ]
    assert found
    assert all(claim.strict for claim in found)


def test_a_scenario_file_is_simulated(tmp_path: Path) -> None:
    file = tmp_path / "scenario"
    file.write_text("servers = hierarchical; links { s0 - s1 = 7; }; objects { number = 2; };")
    said = CliRunner().invoke(app, ["siena", "--scenario", str(file), "--json"], catch_exceptions=False)
    found = {row["type"]: row for row in json.loads(said.stdout)["by_type"]}
    # Two objects publish 100 each; those at site 1 cost 7 each.
    assert found["notification"]["requests"] == 200
    assert found["notification"]["cost"] in (0, 700, 1400)
    table = CliRunner().invoke(app, ["siena", "--scenario", str(file)], catch_exceptions=False)
    assert "notification" in table.stdout


def test_the_animated_page_shows_every_architecture_and_needs_nothing_else(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["siena", "--animate", "--out", str(tmp_path)], catch_exceptions=False)
    assert said.exit_code == 0
    page = (tmp_path / "siena.html").read_text()
    data = json.loads(page.split("const data = ", 1)[1].split(";\n", 1)[0])
    assert list(data["scenes"]) == ["ce", "hs", "as", "aa", "gs"]
    assert len(data["places"]) == 100
    assert all(scene["got"] == 1 for scene in data["scenes"].values())
    messages = {
        name: {phase["name"]: len(phase["messages"]) for phase in scene["phases"]}
        for name, scene in data["scenes"].items()
    }
    assert messages["as"]["subscribe"] == 99
    assert messages["aa"]["advertise"] == 99
    assert 0 < messages["hs"]["subscribe"] < 99
    assert messages["ce"]["publish"] <= 2
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    again = (tmp_path / "siena.html").read_bytes()
    CliRunner().invoke(app, ["siena", "--animate", "--out", str(tmp_path)], catch_exceptions=False)
    assert (tmp_path / "siena.html").read_bytes() == again


def test_those_that_belong_together_are_chosen_by_one_name() -> None:
    listed = CliRunner().invoke(app, ["--list"], catch_exceptions=False).stdout
    assert "selftuning           figure-12, figures-13-15, figure-16, figure-17, tuning" in listed
    chosen = [one.name for one in choose(["tuning", "selftuning", "load-factor"], live=False)]
    assert chosen == ["tuning", "figure-12", "figures-13-15", "figure-16", "figure-17", "load-factor"]


def test_a_result_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "figure-3.json").write_text('{"experiment": 3}')
    outcome = CliRunner().invoke(app, ["--render", "--out", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "figure-3.json is not a result of an experiment" in outcome.stderr


def test_a_result_of_another_version_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    [one] = [one for one in ALL if one.name == "load-factor"]
    record = results.run(one, "tiny", [0], silent)
    results.write(msgspec.structs.replace(record, outcomes=[Outcome()]), tmp_path / "results")
    outcome = CliRunner().invoke(app, ["--render", "--out", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "load-factor.json has no 'R-tree online': it is from another version" in outcome.stderr


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_committed_page_and_figures_are_those_of_the_committed_results(suite: Suite) -> None:
    committed = Places.committed()
    every = suite.experiments
    kept = [(one, record) for one in every if (record := results.read(one, committed.results)) is not None]
    missing = [one for one in every if one not in [known for known, _ in kept]]
    text = document.text(kept, missing, Path("figures"), suite.head)
    assert committed.page(suite).read_text() == text
    for one, _ in kept:
        assert (committed.figures / f"{one.name}.png").exists(), one.name


def test_whatever_is_not_reproduced_is_explained() -> None:
    folder = Places.committed().results
    for one in EVERY:
        record = results.read(one, folder)
        for claim in one.claims if record is not None else ():
            explained = claim.why or judge(claim, record.outcomes)[0].verdict == "reproduced"
            assert explained, f"{one.name}: {claim.text}"


def test_every_experiment_has_a_line_a_title_and_a_text() -> None:
    for one in EVERY:
        assert one.line, one.name
        assert one.title, one.name
        assert len(one.about) > 100, one.name


def test_at_least_half_of_the_published_claims_are_reproduced_and_four_fifths_at_least_partly() -> None:
    folder = Places.committed().results
    found = [
        judge(claim, record.outcomes)[0].verdict
        for one in ALL
        if not one.is_ours and (record := results.read(one, folder)) is not None
        for claim in one.claims
    ]
    assert found.count("reproduced") >= 0.5 * len(found)
    assert found.count("not") <= 0.2 * len(found)


@pytest.mark.slow
def test_running_again_with_other_seeds_gives_the_same_table_within_the_spread() -> None:
    """Of those experiments that take seconds; numbers of the first reading, quick sizes, other seeds."""
    for name in ("locality", "figure-9"):
        [one] = [one for one in ALL if one.name == name]
        first, second = (results.run(one, "quick", seeds, silent) for seeds in ([0, 1], [2, 3]))
        for claim in one.claims:
            before, after = judge(claim, first.outcomes)[0], judge(claim, second.outcomes)[0]
            assert before.verdict == after.verdict, claim.text
            for mine, yours in zip(before.ours, after.ours, strict=True):
                assert mine == pytest.approx(yours, rel=0.15), claim.text


def test_publishing_draws_only_what_was_run(tmp_path: Path) -> None:
    [one] = [one for one in ALL if one.name == "load-factor"]
    places = Places.under(tmp_path)
    results.write(results.run(one, "tiny", [0], silent), places.results)
    figure = places.figures / "load-factor.png"
    for drawn, there in (([ALL[0]], False), ([], True)):  # none is all
        kept, missing = publish(places, EDN, drawn)
        assert [known.name for known, _ in kept] == ["load-factor"]
        assert len(missing) == len(ALL) - 1
        assert figure.exists() is there

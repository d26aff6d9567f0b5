"""`edn check`: text, JSON and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from edn.tools.checker.command import check
from tests.unit.checker.script import Step, notified, publish, subscribe, write

app = typer.Typer()
app.command()(check)

DUE = (subscribe("a", 10, 20), publish("e", 30, 40))
OUT_OF_ORDER = (*DUE, publish("f", 50, 60), notified("a", "f", 70), notified("a", "e", 80))


@pytest.mark.parametrize(
    ("steps", "options", "code", "verdict"),
    [
        ((*DUE, notified("a", "e", 50)), [], 0, "holds"),
        (DUE, [], 1, "violated"),
        (DUE[:1], [], 3, "unknown"),
        (OUT_OF_ORDER, [], 0, "holds"),
        (OUT_OF_ORDER, ["--ordered"], 1, "violated"),
        ((*DUE, notified("a", "e", 50)), ["--within", "9"], 1, "violated"),
        ((*DUE, notified("a", "e", 50)), ["--within", "11"], 0, "holds"),
    ],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, steps: tuple[Step, ...], options: list[str], code: int, verdict: str
) -> None:
    path = str(write(tmp_path / "run.jsonl", *steps))
    text = CliRunner().invoke(app, [path, *options])
    assert (text.exit_code, text.stdout.splitlines()[0]) == (code, f"verdict: {verdict}")
    machine = CliRunner().invoke(app, [path, "--json", *options])
    assert (machine.exit_code, json.loads(machine.stdout)["verdict"]) == (code, verdict)


@pytest.mark.parametrize("content", ["nonsense\n", '{"record": "quiet", "time": 1}\n', None])
def test_what_cannot_be_read_is_said_on_stderr(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_text(content)
    result = CliRunner().invoke(app, [str(path)])
    assert result.exit_code == 2
    assert "run.jsonl" in result.stderr
    assert result.stdout == ""


def test_the_number_of_explanations_is_a_choice(tmp_path: Path) -> None:
    path = str(write(tmp_path / "run.jsonl", *DUE, publish("f", 50, 60)))
    for shown in (0, 1, 2):
        result = CliRunner().invoke(app, [path, "--json", "--show", str(shown)])
        assert len(json.loads(result.stdout)["violations"]) == shown

"""The examples in docs/checking.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edn.tools.checker import check_recording

DOCUMENT = (Path(__file__).parents[3] / "docs" / "checking.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    return str(found)


def test_the_recording_in_the_document_holds(tmp_path: Path) -> None:
    lines = block("jsonl").splitlines(keepends=True)
    (tmp_path / "run.jsonl").write_text("".join(lines))
    assert check_recording(tmp_path / "run.jsonl").verdict == "holds"
    lost = [line for line in lines if '"notification"' not in line]
    (tmp_path / "lost.jsonl").write_text("".join(lost))
    assert check_recording(tmp_path / "lost.jsonl").faults == {"missing": 1}


def test_the_program_in_the_document_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block("python"), "checking.md", "exec"), {})
    assert capsys.readouterr().out == "holds\n"

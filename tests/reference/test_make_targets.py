"""The Makefile and what the documents say of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
RULES = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
#: in code: between backticks, or at the beginning of a line of an example
_NAMED = re.compile(r"(?:`|^\$? ?)make ([a-z][a-z-]*)", re.MULTILINE)


def test_every_target_is_phony_and_has_a_help_text() -> None:
    [phony] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert sorted(phony.split()) == sorted(RULES)
    helped = set(re.findall(r"^([a-z][a-z-]*):.*## \S", MAKEFILE, re.MULTILINE))
    assert helped == RULES


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_target_that_a_document_names_exists(path: Path) -> None:
    assert set(_NAMED.findall(path.read_text())) <= RULES


def test_documents_name_targets() -> None:
    named = {target for path in DOCUMENTS for target in _NAMED.findall(path.read_text())}
    assert {"test", "fuzz", "differential", "soak", "chaos", "audit"} <= named

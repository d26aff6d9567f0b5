"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

from pathlib import Path

from edn.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs/cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == page(), "`python -m edn.cli.reference > docs/cli.md` writes it anew"


def test_every_command_has_words() -> None:
    """A heading is followed by a sentence: a command without a docstring would have none."""
    sections = page().split("\n## ")[1:]
    for section in sections:
        for part in section.split("\n### "):
            heading, _, rest = part.partition("\n\n")
            assert rest[:1].isupper() or rest[:1] == "`", heading

"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from edn.cli.reference import page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == page(), "`python -m edn.cli.reference > docs/cli.md` writes it anew"


def test_every_command_has_words() -> None:
    """A heading is followed by a sentence: a command without a docstring would have none."""
    sections = page().split("\n## ")[1:]
    for section in sections:
        for part in section.split("\n### "):
            heading, _, rest = part.partition("\n\n")
            assert rest[:1].isupper() or rest[:1] == "`", heading


def commands() -> dict[tuple[str, ...], set[str]]:
    """The options of every command, by its words; those of `edn` itself under no word."""
    found: dict[tuple[str, ...], set[str]] = {}
    for part in re.split(r"^##+ ", page(), flags=re.MULTILINE):
        heading = re.match(r"`edn((?: [a-z-]+)+)", part)
        rows = re.findall(r"^\| (`-[^|]+) \|", part, re.MULTILINE)
        found[tuple(heading[1].split() if heading is not None else ())] = set(options(" ".join(rows)))
    return found


def options(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text)


def mentioned(text: str) -> list[str]:
    """Commands in a page: between backticks, or a line of an example; each of `list|show` by itself."""
    inline = re.findall(r"`edn ([^`\n]+)`", text)
    lines = re.findall(r"^(?:\$ )?edn ([^\n]+)$", text, re.MULTILINE)
    # Not what a comment or another program says.
    found = [re.split(r"\s#|\s\||\s&&|\s>|\s*…", one)[0] for one in [*inline, *lines]]
    return [re.sub(r"\S+\|\S+", word, one) for one in found for word in alternatives(one)]


def alternatives(text: str) -> list[str]:
    several = re.search(r"(?<!\S)[a-z-]+(\|[a-z-]+)+", text)
    return [""] if several is None else several[0].split("|")


def wrong(text: str, known: dict[tuple[str, ...], set[str]]) -> str | None:
    """What of a command is not there."""
    try:
        words = shlex.split(text)
    except ValueError:  # half of a quotation
        words = text.split()
    while words and words[0].startswith("-"):
        if words[0] not in known[()] | {"--help"}:
            return words[0]
        words = words[2:]  # all of them take a value
    path: tuple[str, ...] = ()
    while words and any(one[: len(path) + 1] == (*path, words[0]) for one in known):
        path = (*path, words.pop(0))
    holds_others = any(one[: len(path)] == path != one for one in known)
    if holds_others and words and not words[0].startswith("-"):
        return words[0]
    strange = set(options(" ".join(words))) - known[path] - {"--help"}
    return min(strange, default=None)


PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {PAGE})


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_commands_that_a_page_mentions_are_there_with_their_options(file: Path) -> None:
    known = commands()
    found = {one: wrong(one, known) for one in mentioned(file.read_text())}
    assert {one: what for one, what in found.items() if what is not None} == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("repartition plan --servers 3 --plan x", None),
        ("--key-file secret key create me --scope admin", None),
        ("repartition make", "make"),
        ("repartition plan --server 3", "--server"),
        ("--verbose topic list", "--verbose"),
        ("nothing", "nothing"),
    ],
)
def test_a_command_that_is_not_there_is_noticed(text: str, what: str | None) -> None:
    assert wrong(text, commands()) == what


def test_every_command_of_a_list_is_looked_for() -> None:
    assert mentioned("see `edn key list|revoke`, or\n\n$ edn top # now\n") == [
        "key list",
        "key revoke",
        "top",
    ]

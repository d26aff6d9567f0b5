"""Text that reaches Plotly, which reads pseudo-HTML: no publisher places a link on an operator's page."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.programs import require

STATIC = Path(__file__).resolve().parents[3] / "dispatcher" / "api" / "dashboard" / "static"
#: keys of Plotly's figures whose values it reads as pseudo-HTML
KEYS = "text|ticktext|name|hovertext|customdata|labels|texttemplate|hovertemplate|tickprefix|ticksuffix"
_KEYED = re.compile(rf"(?<![.\w])({KEYS})\s*:\s*(.*)")
#: a property that is called like its variable
_SHORT = re.compile(rf"(?<=[{{,])\s*({KEYS})\s*(?=[,}}])(?=.*\b(?:x|y|line|marker)\b\s*[:,])")


def drawing() -> dict[str, str]:
    """The modules that draw with Plotly."""
    found = {path.name: path.read_text() for path in STATIC.glob("*.js")}
    return {name: source for name, source in found.items() if "Plotly.react" in source}


def unescaped(source: str) -> list[str]:
    """Values under one of the keys that are neither constants nor go through `plain`."""
    found = []
    for line in source.splitlines():
        for key, value in _KEYED.findall(line):
            is_constant = re.match(r'"[^"]*"', value) is not None
            if not is_constant and "plain(" not in value:
                found.append(f"{key}: {value}")
        found += _SHORT.findall(line)
    return found


def test_there_are_modules_that_draw() -> None:
    assert {"map.js", "charts.js"} <= set(drawing())


@pytest.mark.parametrize("name", sorted(drawing()))
def test_every_text_for_plotly_is_escaped(name: str) -> None:
    assert unescaped(drawing()[name]) == []


@pytest.mark.parametrize(
    "line",
    [
        "ticktext: shown.map(([, label]) => label)",
        "text: events.map((event) => event.to)",
        'return { type: "scatter", name: server.server, x: xs };',
        "title: { text: across.attribute },",
        'const line = (name, y) => ({ type: "scatter", mode: "lines", name, x: times(), y });',
    ],
)
def test_a_text_that_is_not_escaped_is_noticed(line: str) -> None:
    assert unescaped(line)


def test_what_plain_makes_of_tags_and_entities() -> None:
    require("node")
    texts = ['<a href="https://evil.example/">x</a>', "a & b", "&lt;", "<b>", "é <br>", "a<b>c", "", "$x$"]
    script = (
        f"import({json.dumps((STATIC / 'text.js').as_uri())}).then((found) => "
        f"console.log(JSON.stringify({json.dumps(texts)}.map(found.plain))))"
    )
    ran = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=True
    )
    made = json.loads(ran.stdout)
    assert not any("<" in one or ">" in one for one in made)
    undone = [
        one.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for one in made
    ]  # as Plotly does
    assert undone == texts

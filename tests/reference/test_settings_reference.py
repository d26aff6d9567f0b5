"""docs/operating.md names every flag of the services and its variable, and none that is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def section(service: str) -> str:
    """The part of the page about a service: from its heading to the next of the same level."""
    page = (ROOT / "docs/operating.md").read_text()
    heading = {"dispatcher": "Dispatcher", "edn_server": "Server"}[service]
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


#: what is not made of the flag's name
IRREGULAR = {"--allow-sink-network": "ALLOW_SINK_NETWORKS"}


def rows(service: str) -> dict[str, str]:
    """Flag → its variable, of the tables; a row may have several of both."""
    found: dict[str, str] = {}
    for line in section(service).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        flags = FLAG.findall(cells[0]) if line.startswith("| `--") else []
        variables = re.findall(r"`(EDN_[A-Z_]+)", cells[1]) if len(cells) > 1 else []
        # A table of defaults names no variables: the page says once how they follow from the flags.
        found.update(zip(flags, variables, strict=True) if variables else dict.fromkeys(flags, ""))
    return found


@pytest.mark.parametrize("service", ["dispatcher", "edn_server"])
def test_the_tables_name_every_flag_with_its_variable(service: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", service, "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout
    options = shown.split("options:", 1)[1]
    flags = {FLAG.search(line)[0] for line in options.splitlines() if re.match(r"\s+(-\w, )?--", line)}  # type: ignore[index]
    flags.discard("--help")
    named = rows(service)
    assert sorted(flags - named.keys()) == [], "not in docs/operating.md"
    assert sorted(named.keys() - flags) == [], "in docs/operating.md, and not there"
    prefix = "EDN_SERVER_" if service == "edn_server" else "EDN_"
    for flag, variable in named.items():
        assert variable in ("", prefix + IRREGULAR.get(flag, flag[2:].upper().replace("-", "_"))), flag

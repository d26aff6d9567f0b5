"""Asks PyPI's database, through pip-audit, which locked packages have known vulnerabilities."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 300


@dataclass(slots=True)
class Found:
    checked: int = 0
    skipped: list[str] = field(default_factory=list)
    #: package, version: ids and versions that mend them
    vulnerable: list[str] = field(default_factory=list)
    #: why nothing was checked
    unreachable: str | None = None


def ask(lock: Path) -> Found:
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--require-hashes"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Found(unreachable=f"no answer within {SECONDS} s")
    try:
        return read(json.loads(ran.stdout))
    except (ValueError, KeyError, TypeError):
        last = (ran.stderr.strip().splitlines() or ["no output"])[-1]
        return Found(unreachable=last[:300])


def read(document: dict[str, Any]) -> Found:
    """What pip-audit's JSON says. A database that knows none of the packages is not that of PyPI."""
    found = Found()
    for one in document["dependencies"]:
        if "skip_reason" in one:
            found.skipped.append(one["name"])
            continue
        found.checked += 1
        for each in one["vulns"]:
            mended = ", ".join(each.get("fix_versions") or ()) or "no version yet"
            found.vulnerable.append(f"{one['name']} {one['version']}: {each['id']}, mended in {mended}")
    if not found.checked:
        found.unreachable = "the database knows none of the packages"
    return found

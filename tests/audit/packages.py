"""Which packages are locked, which of them edn needs at run time, and which are installed."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+))?", re.MULTILINE)


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked(text: str | None = None) -> dict[str, str]:
    """Name → version of everything in the lock that applies to this platform."""
    found = {}
    for name, version, marker in _LOCKED.findall(text or (ROOT / "requirements.lock").read_text()):
        if not marker or Requirement(f"{name} ; {marker.strip()}").marker.evaluate():  # type: ignore[union-attr]
            found[str(canonicalize_name(name))] = version
    return found


def installed() -> dict[str, str]:
    found = {}
    for one in metadata.distributions():
        found.setdefault(str(canonicalize_name(one.metadata["Name"])), one.version)
    return found


def runtime() -> set[str]:
    """Names of the packages that edn needs without its extras, and of all that those need."""
    waiting = [Requirement(line) for line in project()["project"]["dependencies"]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        name = str(canonicalize_name(wanted.name))
        if (name, frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, frozenset(wanted.extras)))
        for line in metadata.requires(name) or ():
            inner = Requirement(line)
            if inner.marker is None or any(
                inner.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)
            ):
                inner.marker = None
                waiting.append(inner)
    return {name for name, _ in seen}


def differences() -> list[str]:
    """Where the environment is not what the lock says."""
    there = installed()
    return [
        f"{name}: locked {version}, installed {there.get(name, 'not at all')}"
        for name, version in sorted(locked().items())
        # The environment's own installer comes with Python.
        if there.get(name) != version and name not in ("pip", "setuptools")
    ]

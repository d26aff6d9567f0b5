"""Writes a bill of materials, and fails on licences that are not allowed and on known vulnerabilities."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.audit import licences, packages, sbom, vulnerabilities


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("audit-results"), help="folder (%(default)s)")
    parser.add_argument("--offline", action="store_true", help="do not ask for vulnerabilities")
    given = parser.parse_args(argv)
    given.results.mkdir(parents=True, exist_ok=True)
    failures = packages.differences()
    if failures:
        print("the environment is not what the lock says; run `make setup`")
    failures += _sbom(given.results) if not failures else []
    failures += check_licences()
    if given.offline:
        print("vulnerabilities: not checked: --offline")
    else:
        failures += _vulnerabilities()
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def _sbom(results: Path) -> list[str]:
    whole, runtime = packages.locked(), packages.runtime()
    document = sbom.environment()
    for file, names in (("sbom.json", set(whole)), ("sbom-runtime.json", set(whole) & runtime)):
        found = sbom.restrict(document, names, runtime)
        (results / file).write_text(json.dumps(found, indent=2) + "\n")
        print(f"{results / file}: {len(found['components'])} packages, CycloneDX {found['specVersion']}")
    return []


def check_licences() -> list[str]:
    """Run-time dependencies by the first list, the others by both."""
    rules = packages.project()["tool"]["audit"]
    allowed, known = frozenset(rules["allowed"]), rules.get("known", {})
    there = packages.installed()
    names = {name for name in packages.locked() if name in there}
    runtime = names & packages.runtime()
    wrong = licences.check(sorted(runtime), allowed, known)
    wrong += licences.check(sorted(names - runtime), allowed | frozenset(rules["allowed-dev"]), known)
    print(f"licences: {len(runtime)} packages at run time, {len(names - runtime)} for development")
    return wrong


def _vulnerabilities() -> list[str]:
    found = vulnerabilities.ask(packages.ROOT / "requirements.lock")
    if found.unreachable is not None:
        print(f"vulnerabilities: not checked: no database reachable ({found.unreachable})")
        return []
    print(f"vulnerabilities: {found.checked} packages checked, {len(found.vulnerable)} found")
    if found.skipped:
        print(f"vulnerabilities: not checked, because the database does not know them: {found.skipped}")
    return found.vulnerable


if __name__ == "__main__":
    sys.exit(main())

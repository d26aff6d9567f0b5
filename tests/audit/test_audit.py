"""The offline parts of the audit: licences, the bill of materials, and how answers are read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit import __main__ as command
from tests.audit import licences, packages, sbom, vulnerabilities

ALLOWED = frozenset({"MIT", "Apache-2.0", "BSD-3-Clause"})


def test_every_dependency_has_a_licence_that_is_allowed() -> None:
    assert command.check_licences() == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Apache-2.0", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("a licence of our own", None),
        ("", None),
    ],
)
def test_which_expressions_are_allowed(expression: str, expected: bool | None) -> None:
    assert licences.is_allowed(expression, ALLOWED) is expected


def test_an_unknown_and_a_forbidden_licence_are_named_with_their_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"good": ["MIT"], "bad": ["AGPL-3.0-only"], "silent": [], "odd": ["see LICENSE"]}
    monkeypatch.setattr(licences, "declared", told.__getitem__)
    wrong = licences.check(["good", "bad", "silent", "odd"], ALLOWED, {})
    assert [line.partition(":")[0] for line in wrong] == ["bad", "odd", "silent"]
    assert licences.check(["silent"], ALLOWED, {"silent": "MIT"}) == []


def test_tools_of_developers_are_not_needed_at_run_time() -> None:
    runtime, locked = packages.runtime(), packages.locked()
    assert {"msgspec", "numpy", "uvicorn", "anyio"} <= runtime
    assert not {"pytest", "mypy", "locust", "pyspark", "cyclonedx-bom"} & runtime
    assert runtime <= set(locked)


def test_the_lock_is_read_with_its_markers() -> None:
    lines = ["a-b==1.0 \\", "    --hash=sha256:00", 'c==2 ; sys_platform == "win32" \\', "    --hash=x"]
    text = "\n".join([*lines, 'd==3 ; python_version >= "3"', ""])
    assert packages.locked(text) == {"a-b": "1.0", "d": "3"}


def test_the_bill_of_materials_holds_locked_packages_and_no_path_of_this_machine() -> None:
    runtime = packages.runtime()
    found = sbom.restrict(sbom.environment(validate=False), set(packages.locked()), runtime)
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "edn"
    scopes = {one["name"]: one["scope"] for one in found["components"]}
    assert scopes["msgspec"] == "required"
    assert scopes["pytest"] == "excluded"
    refs = {one["bom-ref"] for one in found["components"]} | {found["metadata"]["component"]["bom-ref"]}
    assert {ref for one in found["dependencies"] for ref in (one["ref"], *one["dependsOn"])} <= refs
    assert "file://" not in str(found)
    assert str(packages.ROOT) not in str(found)


def test_what_a_database_says() -> None:
    clean: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
    bad = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
    unknown = {"name": "c", "skip_reason": "not found"}
    found = vulnerabilities.read({"dependencies": [clean, bad, unknown]})
    assert (found.checked, found.skipped, found.unreachable) == (2, ["c"], None)
    assert found.vulnerable == ["b 2: PYSEC-1, mended in 3"]
    assert vulnerabilities.read({"dependencies": [unknown]}).unreachable


def test_a_database_that_cannot_be_reached_is_said_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vulnerabilities, "ask", lambda lock: vulnerabilities.Found(unreachable="no network"))
    assert command._vulnerabilities() == []
    assert "not checked: no database reachable" in capsys.readouterr().out

"""Every test runs on both engines, those on PostgreSQL as long tests.

A test whose subject is one engine, such as the files of a data folder, names it with the marker `engines`.
Several dispatchers exist in PostgreSQL only.
"""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" not in metafunc.fixturenames:
        return
    named = metafunc.definition.get_closest_marker("engines")
    names: tuple[str, ...] = ("sqlite", "postgresql") if named is None else named.args
    if getattr(metafunc.module, "DISPATCHERS", 1) > 1:
        names = ("postgresql",)
    marks = [pytest.mark.slow] if len(names) > 1 else []
    engines = [pytest.param(name, marks=marks if name == "postgresql" else []) for name in names]
    metafunc.parametrize("engine", engines, indirect=True, scope="module")

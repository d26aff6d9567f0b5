"""docs/api.md names every call of the dispatcher's interface, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import dispatcher.app
import dispatcher.settings

DOCS = Path(__file__).parents[2] / "docs"
#: `GET /v1/topics/{name}`, with or without a query
CALL = re.compile(r"`(GET|PUT|POST|DELETE) (/[^\s`?]*)[^`]*`")


def test_the_page_names_every_call_and_no_other(tmp_path: Path) -> None:
    settings = dispatcher.settings.Settings(data=tmp_path, secret="a secret of the tests, long enough")
    paths = dispatcher.app.create_app(settings).openapi()["paths"]
    there = {
        (method.upper(), path)
        for path, operations in paths.items()
        for method in operations
        if method != "parameters" and not path.startswith("/internal/")
    }
    page = (DOCS / "api.md").read_text()
    named = {(method, path) for method, path in CALL.findall(page)}
    assert sorted(there - named) == [], "not in docs/api.md"
    assert sorted(named - there) == [], "in docs/api.md, and not there"

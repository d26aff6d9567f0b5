"""The reference names every call of the dispatcher's interface, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import dispatcher.app
import dispatcher.config

DOCS = Path(__file__).parents[2] / "docs"
#: the interface, and what has a page of its own
PAGES = ("api.md", "cloudevents.md", "moving.md", "security.md", "soap.md")
#: `GET /v1/topics/{name}`, with or without a query
CALL = re.compile(r"`(GET|PUT|POST|DELETE) (/[^\s`?]*)[^`]*`")


def test_the_page_names_every_call_and_no_other(tmp_path: Path) -> None:
    settings = dispatcher.config.Settings(data=tmp_path, secret="a secret of the tests, long enough")
    paths = dispatcher.app.create_app(settings).openapi()["paths"]
    there = {
        (method.upper(), path)
        for path, operations in paths.items()
        for method in operations
        if method != "parameters" and not path.startswith("/internal/")
    }
    named = {(method, path) for page in PAGES for method, path in CALL.findall((DOCS / page).read_text())}
    assert sorted(there - named) == [], f"in none of {', '.join(PAGES)}"
    assert sorted(named - there) == [], f"in one of {', '.join(PAGES)}, and not there"

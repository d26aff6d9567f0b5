"""`edn tenant`: list tenants."""

from __future__ import annotations

import typer

from edn.cli.output import number, show_rows
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, show_json

app = typer.Typer(
    help="List tenants. A tenant is created with its first key: edn key create … --tenant NAME.",
    no_args_is_help=True,
)

NUMBERS = ("keys", "topics", "subscriptions")


@app.callback()
def tenant() -> None:
    """List tenants. A tenant is created with its first key: edn key create … --tenant NAME."""


@app.command("list")
def list_tenants(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """List tenants with the numbers of their keys, topics and subscriptions. For operators."""
    with connected(url) as client:
        found = client.tenants()
    if json:
        show_json(found)
        return
    show_rows(
        ("tenant", *NUMBERS),
        (
            (one.name or "(operator)", number(one.keys), number(one.topics), number(one.subscriptions))
            for one in found
        ),
        right=NUMBERS,
        none="there are no tenants",
    )

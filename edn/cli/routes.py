"""`edn route`: list routing entries, bind names to servers and matchers."""

from __future__ import annotations

from typing import Annotated

import typer

from edn.cli.output import number, show, show_rows
from edn.formats.counts import counted
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, show_json

app = typer.Typer(
    help="List the routing table, and bind topics and subtrees to servers and engines.", no_args_is_help=True
)

NameArgument = Annotated[
    str, typer.Argument(help="Topic or subtree, such as 'stocks.**'; of another tenant: acme/stocks.")
]
NUMBERS = ("subscriptions", "rectangles", "maximal", "precision", "bytes", "summary")


@app.command("list", hidden=True)  # as in the other groups
@app.command("ls")
def list_routes(
    name: Annotated[str | None, typer.Argument(help="Only this topic or subtree.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """List routing entries, one per topic and server, and bindings."""
    with connected(url) as client:
        found = client.routes(name)
    if json:
        show_json(found)
        return
    show_rows(
        ("topic", "server", *NUMBERS),
        (
            (
                one.name,
                one.server,
                number(one.subscriptions),
                "everything" if one.everything else number(one.rectangles),
                number(one.maximal),
                number(one.precision, ".0%"),
                number(one.bytes),
                "none" if one.revision is None else ".".join(map(str, one.revision)),
            )
            for one in found.routes
        ),
        right=NUMBERS,
    )
    if found.bindings:
        typer.echo()
        show_rows(
            ("bound name", "servers", "engine", "misplaced"),
            (
                (
                    bound.name,
                    "any" if bound.servers is None else " ".join(bound.servers),
                    bound.engine or "",
                    str(bound.misplaced or ""),
                )
                for bound in found.bindings
            ),
        )


@app.command("add")
def add(
    name: NameArgument,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", help="Server that may host its subscriptions. Repeatable."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Name or URI of the engine for its topics.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Bind a name to servers, to an engine, or to both. Replaces an earlier binding of the name."""
    with connected(url) as client:
        made = client.bind_route(name, servers=server or None, engine=engine)
    bound = [f"engine {made.engine}"] if made.engine else []
    bound += [f"servers {' '.join(made.servers)}"] if made.servers else []
    lines = [f"{made.name}: {', '.join(bound)}"]
    if made.misplaced:
        lines.append(
            f"{counted(made.misplaced, 'subscription')} on other servers; move with `edn repartition --topic`"
        )
    show(json, made, *lines)


@app.command("remove", hidden=True)
@app.command("rm")
def remove(name: NameArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Remove the binding of a name. The binding of an enclosing subtree applies again."""
    with connected(url) as client:
        client.unbind_route(name)
    show(json, {"unbound": name}, f"removed the binding of {name}")

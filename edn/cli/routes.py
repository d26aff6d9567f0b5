"""`edn route`: list the routing entries, bind names to servers and matchers."""

from __future__ import annotations

from typing import Annotated

import typer

from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, show_json, show_table

app = typer.Typer(
    help="Which topics are routed to which servers, and what is bound to names of topics and subtrees.",
    no_args_is_help=True,
)

NameArgument = Annotated[
    str, typer.Argument(help="A topic or a subtree such as 'stocks.**'; another tenant's as acme/stocks.")
]


@app.command("ls")
def list_routes(
    name: Annotated[str | None, typer.Argument(help="Only what is in this topic or subtree.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """List the routing entries, a topic and a server each, and what is bound to names."""
    with connected(url) as client:
        found = client.routes(name)
    if json:
        show_json(found)
        return
    from rich.table import Table

    entries = Table("topic", "server", box=None)
    for heading in ("subscriptions", "rectangles", "maximal", "precision", "bytes", "summary"):
        entries.add_column(heading, justify="right")
    for one in found.routes:
        entries.add_row(
            one.name,
            one.server,
            f"{one.subscriptions:,}",
            "everything" if one.everything else f"{one.rectangles:,}",
            f"{one.maximal:,}",
            "" if one.precision is None else f"{one.precision:.0%}",
            f"{one.bytes:,}",
            "none" if one.revision is None else ".".join(map(str, one.revision)),
        )
    show_table(entries)
    if found.bindings:
        bindings = Table("bound name", "servers", "engine", "misplaced", box=None)
        for bound in found.bindings:
            servers = "any" if bound.servers is None else " ".join(bound.servers)
            bindings.add_row(bound.name, servers, bound.engine or "", str(bound.misplaced or ""))
        typer.echo()
        show_table(bindings)


@app.command("add")
def add(
    name: NameArgument,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", help="One that may host its subscriptions; again for each."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Name or URI of the matcher that topics inherit.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Bind a name to servers, to a matcher, or to both, in place of what is bound to it."""
    with connected(url) as client:
        made = client.bind_route(name, servers=server or None, engine=engine)
    if json:
        show_json(made)
        return
    said = [f"engine {made.engine}"] if made.engine else []
    said += [f"servers {' '.join(made.servers)}"] if made.servers else []
    typer.echo(f"{made.name}: {', '.join(said)}")
    if made.misplaced:
        typer.echo(
            f"{made.misplaced:,} subscriptions are on other servers; `edn repartition --topic` moves them"
        )


@app.command("rm")
def remove(name: NameArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Take away what is bound to a name; what is bound further up counts again."""
    with connected(url) as client:
        client.unbind_route(name)
    if json:
        show_json({"unbound": name})
    else:
        typer.echo(f"nothing is bound to {name} any more")

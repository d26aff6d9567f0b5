"""`edn status`: the network at a glance."""

from __future__ import annotations

import typer

from edn.cli.console import DEFAULT_URL, JsonOption, UrlOption, connected, show_json, show_table


def status(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show the servers: state, subscriptions, lag behind the log, share of the events forwarded to each."""
    with connected(url) as client:
        health = client.health()
        servers = client.servers()
        topics = client.topics()
    if json:
        names = [topic.name for topic in topics]
        show_json({"url": url, "ready": health.ready, "topics": names, "servers": servers})
        return
    from rich.table import Table

    typer.echo(f"{url}: {'ready' if health.ready else 'not ready'}, {_count(len(topics), 'topic')}")
    table = Table("server", "state", box=None)
    for heading in ("subscriptions", "lag", "hit ratio", "precision", "to deliver"):
        table.add_column(heading, justify="right")
    for server in servers:
        table.add_row(
            server.id,
            server.state or "",
            f"{server.subscriptions:,}",
            "" if server.lag is None else f"{server.lag:,}",
            "" if server.hit_ratio is None else f"{server.hit_ratio:.1%}",
            "" if server.precision is None else f"{server.precision:.0%}",
            "" if server.backlog is None else f"{server.backlog:,}",
        )
    show_table(table)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

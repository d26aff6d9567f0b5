"""`edn status`: the network at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from edn.cli import clocks
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, show_json, show_table

if TYPE_CHECKING:
    from edn.client import Client, Clock, Dispatcher, Server, moving


def status(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show dispatchers and servers: state, subscriptions, lag, share of the events forwarded to each."""
    with connected(url) as client:
        health = client.health()
        dispatchers = client.dispatchers()
        servers = client.servers()
        topics = client.topics()
        partition = _partition(client)
        clock = _clock(client)
    if json:
        names = [topic.name for topic in topics]
        shown = {
            "url": url,
            "ready": health.ready,
            "topics": names,
            "dispatchers": dispatchers,
            "servers": servers,
            "clock": clock,
        }
        show_json(shown if partition is None else {**shown, "partition": partition})
        return
    typer.echo(f"{url}: {'ready' if health.ready else 'not ready'}, {_count(len(topics), 'topic')}")
    _list_dispatchers(dispatchers, url)
    _list_servers(servers)
    if clock is not None and clock.is_suspect:
        clocks.show(clock)
    if partition is not None:
        _tell(partition)


def _list_dispatchers(dispatchers: list[Dispatcher], url: str) -> None:
    from rich.table import Table

    table = Table("dispatcher", "state", "log", "", box=None)
    for one in dispatchers:
        state = "ready" if one.ready else "not ready" if one.reachable else "away"
        notes = [
            "asked" if one.asked and len(dispatchers) > 1 else None,
            "carries out changes" if one.leader else None,
            "not level" if one.reachable and not one.level else None,
            one.failure,
        ]
        where = one.url or (url if one.asked else "")
        table.add_row(where, state, one.log or "", ", ".join(note for note in notes if note))
    show_table(table)


def _list_servers(servers: list[Server]) -> None:
    from rich.table import Table

    table = Table("server", "state", box=None)
    for heading in ("subscriptions", "lag", "hit ratio", "precision", "to deliver"):
        table.add_column(heading, justify="right")
    for server in servers:
        table.add_row(
            server.id,
            server.leaving or server.state or "",
            f"{server.subscriptions:,}",
            "" if server.lag is None else f"{server.lag:,}",
            "" if server.hit_ratio is None else f"{server.hit_ratio:.1%}",
            "" if server.precision is None else f"{server.precision:.0%}",
            "" if server.backlog is None else f"{server.backlog:,}",
        )
    show_table(table)


def _clock(client: Client) -> Clock | None:
    """Whether a wall clock is suspect; None for whoever may not know."""
    from edn.client import ProblemError

    try:
        return client.clock()
    except ProblemError:
        return None


def _partition(client: Client) -> moving.Repartitions | None:
    """What is being moved, and whether more should be; None for whoever may not know."""
    from edn.client import ProblemError, moving

    try:
        return client.run(moving.repartitions())
    except ProblemError:
        return None


def _tell(partition: moving.Repartitions) -> None:
    for one in partition.repartitions:
        if one.state == "running":
            waiting = f", waiting: {one.waiting}" if one.waiting else ""
            typer.echo(f"repartition {one.id} ({one.kind}): {one.moved:,} moved, {one.left:,} left{waiting}")
    if partition.unsettled:
        typer.echo(f"{partition.unsettled:,} subscriptions wait for what their former server has to deliver")
    if partition.proposal is not None:
        now = partition.hit_ratio.now or partition.proposal.then
        typer.echo(
            f"a repartition is proposed (`edn repartition`): the hit ratio is {now:.1%}, "
            f"it was {partition.proposal.best:.1%}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

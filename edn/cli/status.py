"""`edn status`: a summary of the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from edn.cli import clocks
from edn.cli.output import number, show_rows
from edn.formats.counts import counted
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, show_json

if TYPE_CHECKING:
    from edn.api.ownership import Ownership
    from edn.client import Dispatcher, Server, moving

T = TypeVar("T")

NUMBERS = ("subscriptions", "lag", "hit ratio", "precision", "backlog")


def status(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show dispatchers and servers with state, subscriptions, lag, hit ratio and backlog."""
    from edn.client import moving

    with connected(url) as client:
        health = client.health()
        dispatchers = client.dispatchers()
        servers = client.servers()
        topics = client.topics()
        clock = _if_permitted(client.clock)
        ownership = _if_permitted(client.ownership)
        repartitions = _if_permitted(lambda: client.run(moving.repartitions()))
    if json:
        shown = {
            "url": url,
            "ready": health.ready,
            "topics": [topic.name for topic in topics],
            "dispatchers": dispatchers,
            "servers": servers,
            "clock": clock,
            "ownership": ownership,
        }
        show_json(shown if repartitions is None else {**shown, "partition": repartitions})
        return
    state = "ready" if health.ready else "not ready"
    typer.echo(f"{url}: {state}, {counted(len(topics), 'topic')}")
    _show_dispatchers(dispatchers, url)
    _show_servers(servers)
    if ownership is not None and ownership.engine != "sqlite":
        _show_ownership(ownership)
    if clock is not None and clock.is_suspect:
        typer.echo("\n".join(clocks.describe(clock)))
    if repartitions is not None:
        _show_repartitions(repartitions)


def _if_permitted(read: Callable[[], T]) -> T | None:
    """Returns None if the key lacks the scope for a call."""
    from edn.client import ProblemError

    try:
        return read()
    except ProblemError:
        return None


def _show_dispatchers(dispatchers: list[Dispatcher], url: str) -> None:
    rows = []
    for one in dispatchers:
        notes = [
            "asked" if one.asked and len(dispatchers) > 1 else None,
            "leader" if one.leader and len(dispatchers) > 1 else None,
            "its log is forwarded by another one" if one.draining else None,
        ]
        rows.append(
            (
                one.url or (url if one.asked else ""),
                "ready" if one.ready else "offline",
                one.log,
                ", ".join(note for note in notes if note),
            )
        )
    show_rows(("dispatcher", "state", "log", ""), rows)


def _show_servers(servers: list[Server]) -> None:
    show_rows(
        ("server", "state", *NUMBERS),
        (
            (
                server.id,
                server.leaving or server.state or "",
                number(server.subscriptions),
                number(server.lag),
                number(server.hit_ratio, ".1%"),
                number(server.precision, ".0%"),
                number(server.backlog),
            )
            for server in servers
        ),
        right=NUMBERS,
    )


def _show_ownership(found: Ownership) -> None:
    show_rows(
        ("owner of", "", "state", "process", "since", "takeovers"),
        (
            (one.kind, one.id, one.state, one.holder, one.since or "", number(one.takeovers))
            for one in found.leases
        ),
        right=("takeovers",),
    )
    standbys = ", ".join(
        f"{one.name or 'a standby'}{f' ({one.sync})' if one.sync else ''}"
        + (f", {one.lag_bytes:,} bytes behind" if one.lag_bytes else "")
        for one in found.replicas
    )
    typer.echo(f"{counted(found.spares, 'spare')} waiting; the database has {standbys or 'no standby'}")


def _show_repartitions(found: moving.Repartitions) -> None:
    for one in found.repartitions:
        if one.state == "running":
            waiting = f", waiting: {one.waiting}" if one.waiting else ""
            typer.echo(f"repartition {one.id} ({one.kind}): {one.moved:,} moved, {one.left:,} left{waiting}")
    if found.unsettled:
        waiting = counted(found.unsettled, "migrated subscription")
        typer.echo(f"{waiting} {'waits' if found.unsettled == 1 else 'wait'} for the hand-over")
    if found.proposal is not None:
        now = found.hit_ratio.now or found.proposal.then
        typer.echo(
            f"a repartition is proposed (`edn repartition`): the hit ratio rose from "
            f"{found.proposal.best:.1%} to {now:.1%}"
        )

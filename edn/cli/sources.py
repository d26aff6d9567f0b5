"""`edn source`: brokers whose messages become events of a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.arguments import read_secret_file
from edn.cli.output import confirm, show, show_rows
from edn.tools.console import (
    DEFAULT_URL,
    REFUSED,
    USAGE,
    JsonOption,
    UrlOption,
    connected,
    fail,
    say,
    show_json,
)

if TYPE_CHECKING:
    from edn.client import Source

app = typer.Typer(help="Manage sources: brokers whose messages become events.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(help="Id of the source.")]


@app.command()
def create(
    topic: Annotated[str, typer.Argument(help="Topic whose events the messages become.")],
    broker: Annotated[
        str | None,
        typer.Argument(
            metavar="BROKER_URL",
            help="amqp://host/vhost?queue=NAME, mqtt://host/filter or nats://host/STREAM. Other users of "
            "this machine can see it; prefer --broker-file if it has a password.",
        ),
    ] = None,
    broker_file: Annotated[Path | None, typer.Option(help="File with the URL of the broker.")] = None,
    id: Annotated[str | None, typer.Option(help="Id; the same request again creates nothing.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Create a source: edn source create orders 'amqp://edn@rabbit/%2F?queue=orders'"""
    if (broker is None) == (broker_file is None):
        fail("either BROKER_URL or --broker-file must be given", USAGE)
    given = broker or read_secret_file(broker_file) or ""
    with connected(url) as client:
        source = client.create_source(topic, given, id=id)
    show(json, source, f"source {source.id}: {source.url} → topic {source.topic}")


@app.command("list")
def list_sources(
    tenant: Annotated[
        str | None, typer.Option(help="Sources of this tenant; * of all tenants. For operators.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """List sources with their state."""
    with connected(url) as client:
        sources = client.sources(tenant=tenant)
    if json:
        show_json(sources)
        return
    show_rows(
        ("source", "topic", "broker", "state", "published", "dead letters", "error"),
        (
            (
                one.id,
                one.topic,
                one.url,
                one.state or "",
                f"{one.published:,}",
                f"{one.dead_letters:,}",
                one.last_error or "",
            )
            for one in sources
        ),
        right=("published", "dead letters"),
        none="there are no sources; create one with `edn source create`",
    )


@app.command("show")
def show_source(
    id: IdArgument,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Also show the messages that were not accepted.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Show a source, its counters and its last error."""
    with connected(url) as client:
        source = client.source(id)
        letters = client.source_dead_letters(id) if dead_letters else []
    lines = _lines(source)
    lines += [f"  {one.time} {one.message_id or '-'}: {one.reason}\n    {one.body[:200]}" for one in letters]
    show(json, {"source": source, "dead_letters": letters} if dead_letters else source, *lines)


def _lines(source: Source) -> list[str]:
    lines = [
        f"source {source.id}: {source.url} → topic {source.topic}",
        f"{source.state}, owner {source.owner}, created {source.created}, {source.consumer} at the broker",
        f"received {source.received:,}, published {source.published:,}, rejected {source.rejected:,}, "
        f"dead letters {source.dead_letters:,}",
    ]
    if source.dropped:
        lines.append(f"dropped {source.dropped:,} messages of QoS 0")
    if source.last_error:
        lines.append(f"last error, {source.last_error_time}: {source.last_error}")
    return lines


@app.command()
def delete(
    id: IdArgument,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before deleting dead letters.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Delete a source; messages stay at the broker. Asks first if it has dead letters."""
    with connected(url) as client:
        letters = client.source(id).dead_letters
        if letters and not yes and not confirm(f"Delete source {id} with {letters:,} dead letters?"):
            say(f"source {id} was not deleted")
            raise typer.Exit(REFUSED)
        client.delete_source(id)
    show(json, {"deleted": id}, f"deleted source {id}")

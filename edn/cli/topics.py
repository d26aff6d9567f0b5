"""`edn topic`: create, list, show, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edn.tools.console import (
    DEFAULT_URL,
    USAGE,
    JsonOption,
    UrlOption,
    connected,
    fail,
    show_json,
    show_table,
)

if TYPE_CHECKING:
    from edn.client import Topic

app = typer.Typer(help="Topics and the attributes of their events.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Name of the topic, such as stocks or stocks.nyse.quotes.")]


@app.command()
def create(
    name: NameArgument,
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME:TYPE...",
            help="Attributes with their types: number, integer, string, boolean or time.",
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Matching engine; the network's default if not given.")
    ] = None,
    availability: Annotated[
        str | None,
        typer.Option(help='How long events stay available to later subscriptions: 0, seconds, or "forever".'),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Create a topic, or change the one of this name: edn topic create stocks symbol:string price:number"""
    pairs: dict[str, str] = {}
    for attribute in attributes or []:
        attribute_name, colon, kind = attribute.rpartition(":")
        if not colon or not attribute_name or not kind:
            fail(f'"{attribute}" is no attribute: write NAME:TYPE, such as price:number', USAGE)
        if attribute_name in pairs:
            fail(f'the attribute "{attribute_name}" is given twice', USAGE)
        pairs[attribute_name] = kind
    kept: float | str | None = availability
    if availability is not None:
        try:
            kept = float(availability)
            kept = int(kept) if kept.is_integer() else kept
        except ValueError:
            pass  # "forever", or something that the network refuses with a reason
    with connected(url) as client:
        topic = client.create_topic(name, pairs, engine=engine, availability=kept)
    if json:
        show_json(topic)
    else:
        typer.echo(f"topic {topic.name}: {_attributes(topic)}")


@app.command("list")
def list_topics(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """List all topics."""
    with connected(url) as client:
        topics = client.topics()
    if json:
        show_json(topics)
        return
    from rich.table import Table

    table = Table("topic", "attributes", "engine", "availability", box=None)
    for topic in topics:
        table.add_row(topic.name, _attributes(topic), topic.engine or "", _shown(topic.availability))
    show_table(table)


@app.command()
def show(name: NameArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show one topic with its attributes."""
    with connected(url) as client:
        topic = client.topic(name)
    if json:
        show_json(topic)
        return
    typer.echo(f"topic {topic.name}")
    typer.echo(f"engine {topic.engine or 'default'}, availability {_shown(topic.availability) or '0'}")
    for attribute, kind in topic.attributes.items():
        typer.echo(f"  {attribute}: {kind}")


@app.command()
def delete(
    name: NameArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="End its subscriptions, too.")] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Delete a topic. One that has subscriptions is refused without --cascade."""
    with connected(url) as client:
        client.delete_topic(name, cascade=cascade)
    if json:
        show_json({"deleted": name})
    else:
        typer.echo(f"topic {name} is deleted")


def _attributes(topic: Topic) -> str:
    return " ".join(f"{name}:{kind}" for name, kind in topic.attributes.items()) or "(no attributes)"


def _shown(availability: float | str | None) -> str:
    return f"{availability:g} s" if isinstance(availability, int | float) else availability or ""

"""`edn topic`: create, list, show and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.output import show, show_rows
from edn.tools.console import DEFAULT_URL, USAGE, JsonOption, UrlOption, connected, fail, show_json

if TYPE_CHECKING:
    from edn.client import Topic

app = typer.Typer(help="Manage topics and their schemas.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Topic, such as stocks or stocks.nyse.quotes.")]


@app.command()
def create(
    name: NameArgument,
    attributes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME:TYPE...",
            help="Attributes; types are number, integer, string, boolean and time; string[] is an array of "
            "strings. Dots in a name lead into nested objects: seller.city:string.",
        ),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Matching engine. Default: that of the network.")] = None,
    availability: Annotated[
        str | None,
        typer.Option(help='How long events are replayed to later subscriptions: 0, seconds or "forever".'),
    ] = None,
    closed: Annotated[
        bool | None,
        typer.Option(
            "--closed/--open",
            help="Refuse or keep fields of events that are not attributes. Default for a new topic: keep.",
        ),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Create or change a topic: edn topic create stocks symbol:string price:number"""
    pairs: dict[str, str | list[str]] = {}
    for attribute in attributes or []:
        attribute_name, colon, kind = attribute.rpartition(":")
        if not colon or not attribute_name or not kind:
            fail(f'an attribute must be NAME:TYPE, such as price:number, got "{attribute}"', USAGE)
        if attribute_name in pairs:
            fail(f'attribute "{attribute_name}" is given twice', USAGE)
        pairs[attribute_name] = _parse_type(kind)
    seconds: float | str | None = availability
    if availability is not None:
        try:
            seconds = float(availability)
            seconds = int(seconds) if seconds.is_integer() else seconds
        except ValueError:
            pass  # "forever", or a value that the network refuses
    with connected(url) as client:
        topic = client.create_topic(name, pairs, engine=engine, availability=seconds, closed=closed)
    show(json, topic, f"topic {topic.name}: {_attributes(topic)}")


@app.command("list")
def list_topics(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """List topics."""
    with connected(url) as client:
        topics = client.topics()
    if json:
        show_json(topics)
        return
    show_rows(
        ("topic", "attributes", "engine", "availability"),
        (
            (topic.name, _attributes(topic), topic.engine or "", _shown(topic.availability))
            for topic in topics
        ),
    )


@app.command("show")
def show_topic(name: NameArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show a topic and its attributes."""
    with connected(url) as client:
        topic = client.topic(name)
    show(
        json,
        topic,
        f"topic {topic.name}",
        f"engine {topic.engine or 'default'}, availability {_shown(topic.availability) or '0'}, "
        + ("closed: other fields are refused" if topic.closed else "open: other fields are kept"),
        *(f"  {attribute}: {_type(kind)}" for attribute, kind in topic.attributes.items()),
    )


@app.command()
def delete(
    name: NameArgument,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also end its subscriptions.")] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Delete a topic. A topic with subscriptions is refused without --cascade."""
    with connected(url) as client:
        client.delete_topic(name, cascade=cascade)
    show(json, {"deleted": name}, f"deleted topic {name}")


def _parse_type(text: str) -> str | list[str]:
    """Reads `string[]` or `[string]` as an array; the network refuses unknown types."""
    if text.endswith("[]"):
        return [text.removesuffix("[]")]
    if text.startswith("[") and text.endswith("]"):
        return [text[1:-1]]
    return text


def _type(kind: str | list[str]) -> str:
    return f"{kind[0]}[]" if isinstance(kind, list) else kind


def _attributes(topic: Topic) -> str:
    return " ".join(f"{name}:{_type(kind)}" for name, kind in topic.attributes.items()) or "(no attributes)"


def _shown(availability: float | str | None) -> str:
    return f"{availability:g} s" if isinstance(availability, int | float) else availability or ""

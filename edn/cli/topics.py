"""`edn topic`: create, change, list, show and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.arguments import parse_seconds
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
    from edn.client import Client, Topic

app = typer.Typer(help="Manage topics and their schemas.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="Topic, such as stocks or stocks.nyse.quotes.")]
AttributesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME:TYPE...",
        help="Attributes; types: number, integer, string, boolean, time, bytes; string[] is an array of "
        "strings. Dots in a name lead into nested objects: seller.city:string.",
    ),
]
ClosedOption = Annotated[
    bool | None,
    typer.Option(
        "--closed/--open",
        help="Refuse or keep fields of events that are not attributes. Default for a new topic: keep.",
    ),
]
AdvertisingOption = Annotated[
    str | None,
    typer.Option(
        help="What happens to events that are not advertised: off (accepted), deliver (dropped) or guard "
        "(refused)."
    ),
]
EngineOption = Annotated[str | None, typer.Option(help="Matching engine. Default: that of the network.")]
AvailabilityOption = Annotated[
    str | None,
    typer.Option(
        help='How long events are replayed to later subscriptions: 0, a duration such as 1h, or "forever".'
    ),
]


@app.command()
def create(
    name: NameArgument,
    attributes: AttributesArgument = None,
    engine: EngineOption = None,
    availability: AvailabilityOption = None,
    closed: ClosedOption = None,
    advertising: AdvertisingOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic that exists as it is.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Create a topic: edn topic create stocks symbol:string price:number

    A topic that exists is refused; change it with `edn topic change`.
    """
    from edn.client import ProblemError

    pairs = _pairs(attributes)
    seconds = _seconds(availability)
    with connected(url) as client:
        try:
            topic = client.create_topic(
                name,
                pairs,
                engine=engine,
                availability=seconds,
                closed=closed,
                advertising=advertising,
                only_new=True,
            )
        except ProblemError as problem:
            if problem.status != 412:
                raise
            topic = client.topic(name)
            if not if_not_exists:
                fail(
                    f"topic {name} exists already: {_attributes(topic)}\n"
                    f"Change it with `edn topic change {name}`, or pass --if-not-exists to keep it.",
                    REFUSED,
                )
            if topic.attributes != pairs:
                say(f"topic {name} exists with other attributes and was not changed")
    show(json, topic, f"topic {topic.name}: {_attributes(topic)}")


@app.command()
def change(
    name: NameArgument,
    attributes: AttributesArgument = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="NAME", help="Attribute to remove. Repeatable.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Matching engine.")] = None,
    availability: AvailabilityOption = None,
    closed: ClosedOption = None,
    advertising: AdvertisingOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing anything.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the change without making it.")] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Add attributes to a topic, remove them or change their types; other attributes stay.

    Shows what the change breaks, and asks before it removes an attribute or changes a type. An attribute that
    a filter uses cannot be removed or change its type.
    """
    pairs = _pairs(attributes)
    seconds = _seconds(availability)
    with connected(url) as client:
        old = client.topic(name)
        unknown = [one for one in remove or [] if one not in old.attributes]
        if unknown:
            fail(f'topic {name} has no attribute "{unknown[0]}": {_attributes(old)}', USAGE)
        if both := [one for one in remove or [] if one in pairs]:
            fail(f'attribute "{both[0]}" must be either given or removed', USAGE)
        wanted = {one: kind for one, kind in {**old.attributes, **pairs}.items() if one not in (remove or [])}
        lost = {one: kind for one, kind in old.attributes.items() if wanted.get(one) != kind}
        for line in _changes(old.attributes, wanted):
            say(line)
        if lost:
            if users := _users(client, name, set(lost)):
                listed = "\n".join(f"  {id}: {', '.join(used)}" for id, used in users[:10])
                more = f"\n  and {len(users) - 10:,} more" if len(users) > 10 else ""
                fail(
                    f"filters use these attributes; change or end the subscriptions first:\n{listed}{more}",
                    REFUSED,
                )
            say("no subscription's filter uses them")
        if dry_run:
            show(json, {"name": name, "attributes": wanted, "removed": sorted(lost)})
            return
        if lost and not yes and not confirm(f"Change topic {name}?"):
            say(f"topic {name} was not changed")
            raise typer.Exit(REFUSED)
        topic = client.create_topic(
            name,
            wanted,
            engine=engine,
            availability=seconds,
            closed=closed,
            advertising=advertising,
            revision=old.revision or None,
        )
    if topic.narrowed_advertisements:
        say(f"{topic.narrowed_advertisements:,} advertisements do not cover events with the new attributes")
    show(json, topic, f"topic {topic.name}: {_attributes(topic)}")


@app.command()
def schema(
    name: NameArgument,
    publisher: Annotated[
        str | None, typer.Option(help="Only with the advertisements of this publisher.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Print the JSON Schema of a topic's events, with its advertisements as alternatives."""
    with connected(url) as client:
        show_json(client.topic_schema(name, publisher=publisher))


def _changes(old: Mapping[str, str | list[str]], new: Mapping[str, str | list[str]]) -> list[str]:
    lines = [f"adds {name}:{_type(kind)}" for name, kind in new.items() if name not in old]
    for name, kind in old.items():
        if name not in new:
            lines.append(f"removes {name}:{_type(kind)}")
        elif new[name] != kind:
            lines.append(f"changes {name} from {_type(kind)} to {_type(new[name])}")
    return lines


def _users(client: Client, topic: str, attributes: set[str]) -> list[tuple[str, list[str]]]:
    """Returns the subscriptions whose filters use attributes, with these attributes."""
    from edn.model.filter import Filter

    found = []
    for one in client.subscriptions(topic=topic, limit=1000):
        filters = [Filter.parse(filter) for filter in one.filters_on(topic)]
        names = frozenset(one.by or ()).union(*(filter.attributes for filter in filters))
        used = names & attributes
        if used:
            found.append((one.id, sorted(used)))
    return found


@app.command("list")
def list_topics(
    tenant: Annotated[
        str | None, typer.Option(help="Topics of this tenant; * of all tenants. For operators.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """List topics. An operator sees those of tenants with --tenant."""
    with connected(url) as client:
        topics = client.topics(tenant=tenant)
    if json:
        show_json(topics)
        return
    show_rows(
        ("topic", "attributes", "engine", "availability"),
        (
            (topic.name, _attributes(topic), topic.engine or "", _shown(topic.availability))
            for topic in topics
        ),
        none="there are no topics; create one with `edn topic create`",
    )


@app.command("show")
def show_topic(name: NameArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show a topic and its attributes."""
    with connected(url) as client:
        topic = client.topic(name)
    made = f", revision {topic.revision}, created {topic.created}" if topic.created else ""
    show(
        json,
        topic,
        f"topic {topic.name}",
        f"engine {topic.engine or 'default'}, availability {_shown(topic.availability) or '0'}, "
        + ("closed: other fields are refused" if topic.closed else "open: other fields are kept")
        + made,
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


def _pairs(attributes: list[str] | None) -> dict[str, str | list[str]]:
    pairs: dict[str, str | list[str]] = {}
    for attribute in attributes or []:
        attribute_name, colon, kind = attribute.rpartition(":")
        if not colon or not attribute_name or not kind:
            fail(f'an attribute must be NAME:TYPE, such as price:number, got "{attribute}"', USAGE)
        if attribute_name in pairs:
            fail(f'attribute "{attribute_name}" is given twice', USAGE)
        pairs[attribute_name] = _parse_type(kind)
    return pairs


def _seconds(availability: str | None) -> float | str | None:
    if availability is None or availability == "forever":
        return availability
    return parse_seconds(availability, "--availability")


def _attributes(topic: Topic) -> str:
    return " ".join(f"{name}:{_type(kind)}" for name, kind in topic.attributes.items()) or "(no attributes)"


def _shown(availability: float | str | None) -> str:
    return f"{availability:g} s" if isinstance(availability, int | float) else availability or ""

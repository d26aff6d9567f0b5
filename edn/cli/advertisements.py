"""`edn advertise`, `unadvertise`, `advertisements`, `edn advertisement`, and `edn asyncapi`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.arguments import parse_json
from edn.cli.output import JsonLinesOption, for_each, show, show_rows
from edn.tools.console import DEFAULT_URL, USAGE, JsonOption, UrlOption, compact, connected, fail, show_json

if TYPE_CHECKING:
    from edn.client import Advertisement

app = typer.Typer(help="Show, change and watch an advertisement.", no_args_is_help=True)

_HELP = (
    """What is published, as JSON: '{"what": ["alarm"], "level": [{"gt": 3}], "user": "any"}'. Attributes """
    """that are not named are missing, unless "$others": "any" is given."""
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the advertisement.")]
PublisherOption = Annotated[
    str | None, typer.Option(help="Name of the key that publishes. Default: that of the key in use.")
]
ExpiresOption = Annotated[
    str | None, typer.Option(help="Expiry: a duration such as 1h or P30D, or an RFC 3339 time.")
]


def _parse(text: str) -> dict[str, Any]:
    parsed = parse_json(text, "advertisement")
    if not isinstance(parsed, dict):
        fail('an advertisement must be a JSON object: attribute → a list of alternatives, or "any"', USAGE)
    return parsed


def advertise(
    topic: Annotated[str, typer.Argument(help="Topic.")],
    advertisement: Annotated[str, typer.Argument(help=_HELP)],
    publisher: PublisherOption = None,
    expires: ExpiresOption = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Id of the advertisement; repeating it creates no second one.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Declare which events will be published, and print the advertisement's id.

    A topic may refuse or drop events that are not advertised: see `edn topic change --advertising`.
    """
    given = _parse(advertisement)
    with connected(url) as client:
        made = client.advertise(topic, given, publisher=publisher, expires=expires, id=id)
    show(json, made, made.id)


def unadvertise(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids of advertisements.")] = None,
    topic: Annotated[str | None, typer.Option(help="Topic of --covered-by.")] = None,
    covered_by: Annotated[
        str | None, typer.Option(help="End all advertisements that this one (JSON) covers.")
    ] = None,
    publisher: PublisherOption = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """End advertisements, by id or by covering."""
    if bool(ids) == (covered_by is not None) or (covered_by is not None) != (topic is not None):
        fail("give either ids, or --topic and --covered-by", USAGE)
    with connected(url) as client:
        if covered_by is not None and topic is not None:
            ended = client.unadvertise_covered(topic, _parse(covered_by), publisher=publisher)
            lines = [f"unadvertised {id}" for id in ended]
            show(json, {"unadvertised": ended}, *(lines or ["it covers no advertisement of the publisher"]))
            return

        def end(id: str) -> None:
            client.unadvertise(id)
            show(json, {"unadvertised": id}, f"unadvertised {id}")

        for_each(ids or [], end)


def advertisements(
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    publisher: Annotated[str | None, typer.Option(help="Only this publisher.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonLinesOption = False,
) -> None:
    """List advertisements, and whether anybody listens to what they cover."""
    with connected(url) as client:
        found = client.advertisements(topic=topic, publisher=publisher)
        if json:
            for one in found:
                show_json(one)
            return
        rows = [
            (
                one.id,
                one.topic,
                one.publisher,
                compact(one.advertisement),
                "yes" if one.wanted else "no",
                one.expires or "never",
            )
            for one in found
        ]
    headings = ("id", "topic", "publisher", "advertisement", "wanted", "expires")
    show_rows(headings, rows, none="there are no advertisements")


@app.command("show")
def show_advertisement(id: IdArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show an advertisement, and how many subscriptions may match what it covers."""
    with connected(url) as client:
        found = client.advertisement(id)
    show(json, found, *_lines(found))


@app.command()
def change(
    id: IdArgument,
    advertisement: Annotated[str, typer.Argument(help=_HELP)],
    expires: ExpiresOption = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Replace what is advertised, and the expiry."""
    given = _parse(advertisement)
    with connected(url) as client:
        changed = client.change_advertisement(id, given, expires=expires)
    show(json, changed, *_lines(changed))


@app.command()
def watch(id: IdArgument, url: UrlOption = DEFAULT_URL, json: JsonLinesOption = False) -> None:
    """Print whether an advertisement is wanted: now, and whenever that changes."""
    with connected(url) as client:
        for state in client.wanted(id):
            show(json, {"wanted": state}, "wanted" if state else "not wanted")


def asyncapi(url: UrlOption = DEFAULT_URL) -> None:
    """Print an AsyncAPI 3 document of all topics, advertisements and sinks that the key may see."""
    with connected(url) as client:
        show_json(client.asyncapi())


def _lines(found: Advertisement) -> list[str]:
    lines = [
        f"advertisement {found.id}: {'wanted' if found.wanted else 'not wanted'}",
        f"  topic          {found.topic}",
        f"  publisher      {found.publisher}",
        f"  covers         {compact(found.advertisement)}",
        f"  created        {found.created}",
        f"  expires        {found.expires or 'never'}",
    ]
    if found.subscriptions is not None:  # the answer to a change does not count them
        lines.append(f"  subscriptions  {found.subscriptions}")
    return lines

"""`edn explain`: what would become of an event, tier by tier, or what a filter would hear."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edn.cli.publishing import from_pairs, parse_json
from edn.cli.subscriptions import FILTER_HELP, read_filter
from edn.tools.console import DEFAULT_URL, USAGE, JsonOption, UrlOption, compact, connected, fail, show_json


def explain(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    event: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE... | JSON", help="An event, as attributes or as JSON."),
    ] = None,
    filter: Annotated[str | None, typer.Option(help=FILTER_HELP)] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Explain an event or a filter: edn explain stocks symbol=GE price=32.5

    Nothing is published or stored.
    """
    if bool(event) == (filter is not None):
        fail("give either an event or --filter", USAGE)
    with connected(url) as client:
        if filter is not None:
            found = client.explain_filter(topic, read_filter(filter))
        elif event and event[0].lstrip().startswith("{"):
            try:
                found = client.explain_event(topic, parse_json(" ".join(event)))
            except ValueError as error:
                fail(f"this is no JSON: {error}", USAGE)
        else:
            found = client.explain_event(topic, from_pairs(event or [], client.topic(topic).attributes))
    if json:
        show_json(found)
        return
    for line in _of_filter(found) if filter is not None else _of_event(found):
        typer.echo(line)


def _of_event(found: dict[str, Any]) -> list[str]:
    wasted = ", ".join(found["false_positives"])
    lines = [f"{found['matched']} matched" + (f"; false positives: {wasted}" if wasted else "")]
    for server in found["servers"]:
        if not server["routed"]:
            reason = f"{server['why']} of {server['rectangles']} contains it"
            lines.append(f"{server['server']}: not asked, {reason}")
            continue
        by = f" {compact(server['rectangle'])}" if server["rectangle"] is not None else ""
        verdict = (
            f"does not answer: {server['failure']}"
            if server["failure"]
            else "false positive"
            if server["false_positive"]
            else f"{server['matched']} matched"
        )
        lines.append(f"{server['server']}: {verdict}, by {server['why']}{by}")
        for one in server["subscriptions"]:
            clauses = " and ".join(one["clauses"]) or "everything"
            state = " (paused)" if one["paused"] else ""
            lines.append(f"  {one['id']}{state}: {'by' if one['matches'] else 'not, because of'} {clauses}")
    return lines


def _of_filter(found: dict[str, Any]) -> list[str]:
    recent = found["recent"]
    share = "" if recent["share"] is None else f" ({recent['share']:.1%})"
    inside = "" if found["exact"] else "; an exact check decides inside"
    lines = [
        found["text"] or "everything",
        f"{found['rectangle_count']} rectangles{inside}",
        f"of {recent['events']} recent events {recent['matched']} match{share}",
        f"covers {found['covers_count']}: {', '.join(found['covers'][:10]) or 'none'}",
        f"is covered by {found['covered_by_count']}: {', '.join(found['covered_by'][:10]) or 'none'}",
        f"compared with {found['examined']} of {found['subscriptions']} subscriptions",
    ]
    for server in found["servers"]:
        meets = f"meets {server['meeting']} of {server['rectangles']} rectangles"
        lines.append(f"{server['server']}: {'gets everything' if server['everything'] else meets}")
    return lines

"""`edn explain`: the routing and matching of an event, or the reach of a filter."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from edn.cli.arguments import FILTER_HELP, parse_event, parse_json, read_filter
from edn.cli.output import show
from edn.formats.counts import counted
from edn.tools.console import DEFAULT_URL, USAGE, JsonOption, UrlOption, compact, connected, fail


def explain(
    topic: Annotated[str, typer.Argument(help="Topic of the event or filter.")],
    event: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE... | JSON", help="Event, as attributes or as JSON."),
    ] = None,
    filter: Annotated[str | None, typer.Option(help=FILTER_HELP)] = None,
    subscription: Annotated[
        str | None, typer.Option(metavar="ID", help="Say why this subscription matches the event or not.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Explain an event or a filter: edn explain stocks symbol=GE price=32.5

    Nothing is published or stored.
    """
    if bool(event) == (filter is not None):
        fail("give either an event or --filter", USAGE)
    if subscription is not None and filter is not None:
        fail("--subscription requires an event", USAGE)
    if event and not any("=" in part or part.lstrip().startswith("{") for part in event):
        fail("an event must be NAME=VALUE… or JSON; explain a filter with --filter", USAGE)
    with connected(url) as client:
        if filter is not None:
            found = client.explain_filter(topic, read_filter(filter))
        elif event and event[0].lstrip().startswith("{"):
            found = client.explain_event(
                topic, parse_json(" ".join(event), "event"), subscription=subscription
            )
        else:
            found = client.explain_event(
                topic, parse_event(event or [], client.topic(topic).attributes), subscription=subscription
            )
    show(json, found, *(_filter_lines(found) if filter is not None else _event_lines(found)))


def _event_lines(found: dict[str, Any]) -> list[str]:
    wasted = ", ".join(found["false_positives"])
    lines = _asked_lines(found["subscription"]) if found.get("subscription") else []
    lines.append(f"{found['matched']} matched" + (f"; false positives: {wasted}" if wasted else ""))
    for server in sorted(found["servers"], key=lambda one: str(one["server"])):
        if not server["routed"]:
            reason = f"{server['why']} of {server['rectangles']} contains it"
            lines.append(f"{server['server']}: not routed, {reason}{_age(server)}")
            continue
        by = f" {compact(_with_open_ends(server['rectangle']))}" if server["rectangle"] is not None else ""
        verdict = (
            f"does not answer: {server['failure']}"
            if server["failure"]
            else "false positive"
            if server["false_positive"]
            else f"{server['matched']} matched"
        )
        lines.append(f"{server['server']}: {verdict}, by {server['why']}{by}{_age(server)}")
        for one in server["subscriptions"]:
            clauses = " and ".join(one["clauses"]) or "everything"
            state = " (paused)" if one["paused"] else ""
            lines.append(f"  {one['id']}{state}: {'by' if one['matches'] else 'no match, by'} {clauses}")
    lines += _advertised_lines(found, "covers it")
    if not found["matched"] and not found.get("subscription"):
        lines.append("--subscription ID says why a subscription does not match")
    return lines


#: effect of a topic's `advertising` on events that are not advertised
_UNADVERTISED = {"deliver": ": the event would be dropped", "guard": ": the event would be refused"}


def _advertised_lines(found: dict[str, Any], relation: str) -> list[str]:
    """Formats the advertisements that an event or filter concerns."""
    by, mode = found.get("advertised_by"), found.get("advertising", "off")
    if by is None:
        return [f"nothing is advertised{_UNADVERTISED[mode]}"] if mode in _UNADVERTISED else []
    if not by:
        return [f"no advertisement {relation}{_UNADVERTISED.get(mode, '')}"]
    named = [f"{one['id']} of {one['publisher']}" for one in by[:10]]
    if len(by) > 10:
        named.append("…")
    own = "; only the publisher's own count" if mode in _UNADVERTISED else ""
    return [f"advertised by {', '.join(named)}{own}"]


def _asked_lines(asked: dict[str, Any]) -> list[str]:
    """Formats the answer for one subscription."""
    verdict = "matches" if asked["matches"] else "does not match"
    if asked["failure"]:
        because = asked["failure"]
    elif asked["matches"]:
        because = " and ".join(asked["clauses"]) or "it has no filter"
    else:
        because = ", ".join(f"{clause} is false" for clause in asked["clauses"])
    paused = "; it is paused" if asked["paused"] else ""
    return [f"{asked['id']} {verdict}: {because}{paused}"]


def _age(server: dict[str, Any]) -> str:
    seconds = server.get("summary_seconds")
    return "" if seconds is None else f" (summary {seconds:,.0f} s old)"


def _with_open_ends(rectangle: dict[str, Any]) -> dict[str, Any]:
    """Writes a closed bound next to a rounder number as an open one: gt 30, not gte 30.000000000000004."""
    shown = {}
    for name, bounds in rectangle.items():
        shown[name] = bounds
        if isinstance(bounds, dict):
            shown[name] = {}
            for operator, value in bounds.items():
                towards = {"gte": -math.inf, "lte": math.inf}.get(operator)
                if towards is not None and isinstance(value, float):
                    beyond = math.nextafter(value, towards)
                    if len(repr(beyond)) < len(repr(value)):
                        operator, value = operator[:2], beyond
                shown[name][operator] = value
    return shown


def _filter_lines(found: dict[str, Any]) -> list[str]:
    recent = found["recent"]
    share = "" if recent["share"] is None else f" ({recent['share']:.1%})"
    inside = "" if found["exact"] else "; the predicate decides inside them"
    lines = [
        found["text"] or "everything",
        counted(found["rectangle_count"], "rectangle") + inside,
        f"{recent['matched']} of {counted(recent['events'], 'recent event')} match{share}",
        f"covers {found['covers_count']}: {', '.join(found['covers'][:10]) or 'none'}",
        f"is covered by {found['covered_by_count']}: {', '.join(found['covered_by'][:10]) or 'none'}",
        f"compared with {found['examined']} of {counted(found['subscriptions'], 'subscription')}",
    ]
    if not found["rectangle_count"]:
        lines.insert(1, "warning: no event can match it, because its conditions exclude each other")
    lines += _advertised_lines(found, "overlaps it")
    for server in found["servers"]:
        meets = f"intersects {server['meeting']} of {counted(server['rectangles'], 'rectangle')}"
        lines.append(f"{server['server']}: {'receives everything' if server['everything'] else meets}")
    return lines

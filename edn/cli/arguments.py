"""Arguments that several commands share: filters, events, secret files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edn.errors import InvalidInput
from edn.formats import duration, strict_json
from edn.tools.console import USAGE, fail

Event = dict[str, Any]

FILTER_HELP = (
    """Filter: text such as 'symbol == "GE" and price > 30', or JSON such as """
    """'{"symbol": "GE", "price": {"gt": 30}}'. Default: all events."""
)


def parse_json(text: str, what: str) -> Any:
    """Decodes JSON as strictly as the network does; `what` names the argument in errors."""
    try:
        return strict_json.decode(text.encode("utf-8", "surrogateescape"))
    except InvalidInput as error:
        fail(f"invalid {what}: {error.detail}", USAGE)


def read_filter(given: str | None) -> dict[str, Any] | str | None:
    """Decodes a filter that begins with a brace; the network parses other texts."""
    if given is None or not given.lstrip().startswith("{"):
        return given
    parsed: dict[str, Any] = parse_json(given, "filter")
    return parsed


def parse_seconds(text: str, what: str) -> float:
    """Parses a duration such as 90s, 1h or PT1H, or a number of seconds; `what` names it in errors."""
    found = duration.seconds(text)
    if found is None:
        fail(f'{what} must be seconds, or {duration.EXAMPLES}, got "{text}"', USAGE)
    return int(found) if found.is_integer() else found


#: "TOPIC: FILTER"; no filter begins like that
_STEP = re.compile(r"([A-Za-z0-9_.-]+):(?:\s+(.*))?", re.DOTALL)
_STEP_MEMBERS = frozenset({"topic", "filter", "times", "unless"})


def read_steps(first: str | None, times: int | None, then: Iterable[str]) -> list[dict[str, Any]]:
    """Reads the steps of a sequence: the first filter, and each --then."""
    steps: list[dict[str, Any]] = [{"filter": read_filter(first)}]
    if times is not None:
        steps[0]["times"] = times
    for text in then:
        named = _STEP.fullmatch(text.strip())
        if named is not None:
            steps.append({"topic": named[1], "filter": read_filter(named[2])})
            continue
        given = read_filter(text)
        is_step = isinstance(given, dict) and given and _STEP_MEMBERS.issuperset(given)
        steps.append(dict(given) if is_step and isinstance(given, dict) else {"filter": given})
    return steps


def read_secret_file(file: Path | None) -> str | None:
    """Reads a secret from a file: arguments of a command are visible to other users of the machine."""
    if file is None:
        return None
    try:
        return file.read_text().strip()
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", USAGE)


def parse_event(pairs: Iterable[str], attributes: Mapping[str, str | list[str]]) -> Event:
    """Builds an event from NAME=VALUE arguments, with values of the topic's types.

    Arrays are written as JSON; so are objects and arrays for a name that the topic does not declare.
    """
    event: Event = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            fail(
                f'an attribute must be NAME=VALUE, or the whole event JSON, got "{pair}"',
                USAGE,
            )
        if name in event:
            fail(f'attribute "{name}" is given twice', USAGE)
        event[name] = _parse_value(name, text, attributes.get(name))
        if name == "$availability" and text != "forever":
            event[name] = parse_seconds(text, name)
    return event


def _parse_value(name: str, text: str, kind: str | list[str] | None) -> Any:
    if isinstance(kind, list) or (kind is None and text.startswith(("[", "{"))):
        return parse_json(text, f'value of "{name}"')
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                # A whole number stays one: 33 is published as 33, not as 33.0.
                return int(text) if re.fullmatch(r"-?(0|[1-9]\d{0,14})", text) else float(text)
            case "boolean":
                return {"true": True, "false": False}[text]
            case _:
                # A string, a time, bytes, $id and the like, or a field that the topic does not declare.
                return text
    except (ValueError, KeyError):
        rule = {"integer": "an integer", "number": "a number"}.get(kind or "", "true or false")
        fail(f'attribute "{name}" must be {rule}, got "{text}"', USAGE)

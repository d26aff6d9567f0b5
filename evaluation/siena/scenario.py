"""Scenarios: an architecture, a network, and the behaviour of the clients.

`parse_scenario` reads the published format of scenario files, for instance

    servers = acyclic adv_fwd;
    sites = 100;                        // or: links { s0 - s4 = 31; ... };
    objects { number = 10; pub/adv = 10; time/pub = 2000~2500; cycles = 10; };
    parties { number = 100; notif/sub = 10; cycles = 10; init_delay = 2000~2500; };

A range `low~high` is drawn uniformly. `Population.draw` places the clients and draws all delays, so that
both simulations, event by event and compiled, run the same scenario.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from edn.arrays import Floats, Ints
from edn.errors import InvalidInput
from evaluation.siena.network import Link, Network, transit_stub

Architecture = Literal["ce", "hs", "as", "aa", "gs"]
#: names in scenario files
ARCHITECTURES: dict[str, Architecture] = {
    "centralized": "ce",
    "hierarchical": "hs",
    "acyclic": "as",
    "acyclic adv_fwd": "aa",
    "generic": "gs",
}
#: names in the text
TITLES: dict[Architecture, str] = {
    "ce": "centralised",
    "hs": "hierarchical",
    "as": "acyclic peers, subscriptions forwarded",
    "aa": "acyclic peers, advertisements forwarded",
    "gs": "any graph of peers",
}
#: exponential: a Poisson process, with a mean per object; constant: one draw per object;
#: poisson: each delay from a Poisson distribution
Delays = Literal["exponential", "constant", "poisson"]


def check_architecture(name: str) -> Architecture:
    if name not in get_args(Architecture):
        raise InvalidInput(f'architecture must be one of {", ".join(get_args(Architecture))}, got "{name}"')
    return cast(Architecture, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The behaviour of all clients; the defaults are the published ones."""

    objects: int = 1
    parties: int = 1
    #: sequences of advertise, publications, unadvertise per object; publications in each
    object_cycles: int = 10
    publications: int = 10
    #: sequences of subscribe, notifications, unsubscribe per party; notifications in each
    party_cycles: int = 10
    notifications: int = 10
    publication_delay: tuple[float, float] = (2000.0, 2500.0)
    start_delay: tuple[float, float] = (2000.0, 2500.0)
    delays: Delays = "exponential"
    #: whether parties that still wait unsubscribe when all objects have finished
    ends_parties: bool = False
    #: of advertisement forwarding: whether an unadvertisement is answered by unsubscriptions
    explicit: bool = False
    #: whether an object stays silent between two cycles, for as long as before a publication
    pauses: bool = False

    def __post_init__(self) -> None:
        for name, least in (
            ("objects", 0),
            ("parties", 0),
            ("object_cycles", 1),
            ("publications", 1),
            ("party_cycles", 1),
            ("notifications", 1),
        ):
            if getattr(self, name) < least:
                raise InvalidInput(f"{name} must be {least} or more, got {getattr(self, name)}")
        if self.parties and not self.objects:
            raise InvalidInput(
                f"parties must have objects to wait for, got {self.parties} parties and 0 objects"
            )
        for low, high in (self.publication_delay, self.start_delay):
            if not 0 <= low <= high:
                raise InvalidInput(f"a delay must be a range from 0 or more upwards, got {low:g}~{high:g}")


class Population(NamedTuple):
    """The clients of one run: sites, ascending, and delays."""

    scenario: Scenario
    object_sites: Ints
    #: per object, before each publication
    delays: Floats
    party_sites: Ints
    starts: Floats

    @classmethod
    def draw(cls, scenario: Scenario, sites: int, seed: int | Sequence[int]) -> Population:
        # A stream per purpose: the parties stay where they are when the objects change.
        for_objects, for_delays, for_parties = np.random.default_rng(seed).spawn(3)
        low, high = scenario.publication_delay
        means = for_delays.uniform(low, high, (scenario.objects, 1))
        count = scenario.object_cycles * scenario.publications
        if scenario.delays == "exponential":
            delays = for_delays.exponential(1.0, (scenario.objects, count)) * means
        elif scenario.delays == "constant":
            delays = np.repeat(means, count, axis=1)
        else:
            delays = for_delays.poisson(np.repeat(means, count, axis=1)).astype(np.float64)
        return cls(
            scenario,
            np.sort(for_objects.integers(0, sites, scenario.objects)),
            delays,
            np.sort(for_parties.integers(0, sites, scenario.parties)),
            for_parties.uniform(*scenario.start_delay, scenario.parties),
        )


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    architecture: Architecture
    scenario: Scenario
    #: links of a given network; empty for a random one
    links: tuple[tuple[int, int, int], ...] = ()
    sites: int = 100

    def network(self, seed: int) -> Network:
        if not self.links:
            return transit_stub(self.sites, seed)
        count = 1 + max(max(one, other) for one, other, _ in self.links)
        return Network(count, [(one, other, Link(cost, float(cost))) for one, other, cost in self.links])


_TOKEN = re.compile(r"\s+|//[^\n]*|(?P<word>[\w/~.]+)|(?P<string>\"[^\"\n]*\")|(?P<sign>[={};:-])|(?P<bad>.)")
_TAGS: dict[str, dict[str, str]] = {
    "objects": {
        "number": "objects",
        "pub/adv": "publications",
        "time/pub": "publication_delay",
        "cycles": "object_cycles",
        "event": "",
    },
    "parties": {
        "number": "parties",
        "notif/sub": "notifications",
        "cycles": "party_cycles",
        "init_delay": "start_delay",
        "pattern": "",
    },
}


class _Words:
    """The words of a scenario file with their lines."""

    def __init__(self, text: str) -> None:
        self._words: list[tuple[int, str]] = []
        for found in _TOKEN.finditer(text):
            if found.lastgroup:
                self._words.append((text.count("\n", 0, found.start()) + 1, found.group()))
        self._at = 0
        self._last = text.count("\n") + 1

    @property
    def line(self) -> int:
        return self._words[self._at][0] if self._at < len(self._words) else self._last

    @property
    def has_more(self) -> bool:
        return self._at < len(self._words)

    def peek(self) -> str:
        return self._words[self._at][1] if self.has_more else "the end"

    def take(self) -> str:
        word = self.peek()
        self._at += 1
        return word

    def expect(self, *wanted: str) -> str:
        if self.peek() not in wanted:
            raise self.error(f"{' or '.join(wanted)} must follow, got {self.peek()}")
        return self.take()

    def error(self, problem: str) -> InvalidInput:
        return InvalidInput(f"line {self.line}: {problem}")

    def until(self, end: str) -> Iterator[str]:
        while self.peek() != end:
            if not self.has_more:
                raise self.error(f"{end} must follow, got the end")
            yield self.take()
        self.take()

    def number(self) -> int:
        if not self.peek().isdecimal():
            raise self.error(f"a number must be an integer, got {self.peek()}")
        return int(self.take())

    def span(self) -> tuple[float, float]:
        low, _, high = self.peek().partition("~")
        if not low.isdecimal() or (high and not high.isdecimal()):
            raise self.error(f"a range must be low~high, got {self.peek()}")
        self.take()
        return float(low), float(high or low)

    def site(self) -> int:
        if not re.fullmatch(r"s\d+", self.peek()):
            raise self.error(f"a site must be s0, s1, …, got {self.peek()}")
        return int(self.take()[1:])


def parse_scenario(text: str) -> ScenarioFile:
    """Reads a scenario file; errors name the line."""
    words = _Words(text)
    architecture: Architecture | None = None
    values: dict[str, Any] = {}
    links: list[tuple[int, int, int]] = []
    sites = 100
    while words.has_more:
        line, tag = words.line, words.take()
        if tag == "servers":
            words.expect("=")
            name = " ".join(words.until(";"))
            if name not in ARCHITECTURES:
                known = ", ".join(ARCHITECTURES)
                raise InvalidInput(f'line {line}: servers must be one of {known}, got "{name}"')
            architecture = ARCHITECTURES[name]
        elif tag == "sites":
            words.expect("=")
            sites = words.number()
            words.expect(";")
        elif tag == "links":
            words.expect("{")
            while words.peek() != "}":
                one = words.site()
                words.expect("-")
                other = words.site()
                words.expect("=")
                links.append((one, other, words.number()))
                words.expect(";")
            words.take()
            words.expect(";")
        elif tag in _TAGS:
            words.expect("{")
            while words.peek() != "}":
                line, name = words.line, words.take()
                if name not in _TAGS[tag]:
                    known = ", ".join(_TAGS[tag])
                    raise InvalidInput(f'line {line}: a tag of {tag} must be one of {known}, got "{name}"')
                words.expect("=")
                known = _TAGS[tag][name]
                if not known:
                    words.take()
                elif known.endswith("_delay"):
                    values[known] = words.span()
                else:
                    values[known] = words.number()
                words.expect(";")
            words.take()
            words.expect(";")
        else:
            known = ", ".join(("servers", "sites", "links", *_TAGS))
            raise InvalidInput(f'line {line}: a tag must be one of {known}, got "{tag}"')
    if architecture is None:
        raise InvalidInput(f"servers must be one of {', '.join(ARCHITECTURES)}, got none")
    if not links and sites < 1:
        raise InvalidInput(f"sites must be 1 or more, got {sites}")
    return ScenarioFile(architecture, Scenario(**{"objects": 0, "parties": 0, **values}), tuple(links), sites)

"""Import and export of many subscriptions through two networks; the exports must equal the import.

Subscriptions are imported as JSON lines into one network and exported as JSON lines and as Parquet; the
Parquet file is imported into another network and exported again. The exports are compared line by line,
except for server and creation time, which a network adds.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edn.client import Client
from edn.tools.bench.network import NOWHERE, filters, names_of, network, run_edn
from edn.tools.bench.report import Progress, facts
from edn.tools.bench.workloads import uniform_rectangles

TOPIC = "bulk"
DIMENSIONS = 4
STEP = 10_000
#: fields of the subscriber, which a network must not change
_FIELDS = ("id", "topic", "filter", "sink", "owner", "state", "expires")


@dataclass(frozen=True, slots=True)
class Bulk:
    subscriptions: int
    servers: int
    #: seconds
    imported: float
    exported: float
    exported_parquet: float
    imported_again: float
    exported_again: float
    #: lines that differ
    different: int


def right(outcome: Bulk) -> bool:
    return not outcome.different


def _rate(bulk: Bulk, seconds: float) -> str:
    return f"{seconds:,.1f} s, {bulk.subscriptions / seconds:,.0f} per second"


show = facts(
    "Subscriptions in bulk",
    ("subscriptions, servers", "{r.subscriptions:,}, {r.servers}"),
    ("imported, JSON lines", lambda r: _rate(r, r.imported)),
    ("exported, JSON lines", lambda r: _rate(r, r.exported)),
    ("exported, Parquet", lambda r: _rate(r, r.exported_parquet)),
    ("imported again, Parquet", lambda r: _rate(r, r.imported_again)),
    ("exported again, JSON lines", lambda r: _rate(r, r.exported_again)),
    ("lines that differ", "{r.different:,}"),
)


def run(*, servers: int, subscriptions: int, seed: int, progress: Progress) -> Bulk:
    with tempfile.TemporaryDirectory(prefix="edn-bench-bulk-") as name:
        folder = Path(name)
        source = folder / "source.jsonl"
        progress.say("drawing")
        _draw(source, subscriptions, seed)
        first, parquet, second = folder / "first.jsonl", folder / "first.parquet", folder / "second.jsonl"
        with _network(servers) as url:
            imported = _timed(progress, "importing", "import", str(source), "--url", url)
            exported = _timed(progress, "exporting", "export", str(first), "--json-lines", "--url", url)
            as_parquet = _timed(progress, "exporting", "export", str(parquet), "--url", url)
        with _network(servers) as url:
            again = _timed(progress, "importing again", "import", str(parquet), "--url", url)
            more = _timed(progress, "exporting again", "export", str(second), "--json-lines", "--url", url)
        progress.say("comparing")
        different = sum(_differing(source, other) for other in (first, second))
        return Bulk(subscriptions, servers, imported, exported, as_parquet, again, more, different)


def _draw(path: Path, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        for start in range(0, count, STEP):
            drawn = uniform_rectangles(rng, min(STEP, count - start), DIMENSIONS)
            for row, filter in enumerate(filters(*drawn)):
                line = {
                    "id": f"sub{start + row}",
                    "topic": TOPIC,
                    "filter": filter,
                    "sink": {"url": f"{NOWHERE}/{row % 100}", "recipient": f"r{row}"},
                    "state": "active",
                    "owner": "bench",
                }
                file.write(encode(line) + b"\n")


@contextmanager
def _network(servers: int) -> Iterator[str]:
    """Runs a network with the topic; yields its URL."""
    with network(servers) as running:
        with Client(running.url) as client:
            client.create_topic(TOPIC, dict.fromkeys(names_of(DIMENSIONS), "number"))
        yield running.url


def _timed(progress: Progress, what: str, *arguments: str) -> float:
    progress.say(what)
    began = time.perf_counter()
    run_edn(*arguments)
    return time.perf_counter() - began


def _differing(one: Path, other: Path) -> int:
    """Counts lines that are in only one of the files, or more often there."""
    counted = Counter(_normalised(one))
    counted.subtract(_normalised(other))
    return sum(abs(left) for left in counted.values())


def _normalised(path: Path) -> Iterator[bytes]:
    """Yields each line with the fields of the subscriber only, and without nulls."""
    with path.open("rb") as file:
        for line in file:
            found = msgspec.json.decode(line)
            fields = {name: _without_nulls(found.get(name)) for name in _FIELDS}
            yield msgspec.json.encode(fields, order="sorted")


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(one) for name, one in value.items() if one is not None}

"""Many subscriptions into a network and out of it, twice: what comes out must be what went in.

They are imported as JSON lines into one network and exported, as JSON lines and as Parquet; the Parquet file
is imported into another one, and exported again. The exports are compared line by line, but for what a
network adds by itself: the server, and when it was made.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edn.bench.publish import NOWHERE, network
from edn.bench.report import Progress, show_one
from edn.bench.workloads import uniform_rectangles
from edn.client import Client

TOPIC = "bulk"
NAMES = ["a0", "a1", "a2", "a3"]
STEP = 10_000
#: what a subscriber said, and a network must not change
_SAID = ("id", "topic", "filter", "sink", "owner", "state", "expires")


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> list[tuple[str, str]]:
        def rate(seconds: float) -> str:
            return f"{seconds:,.1f} s, {self.subscriptions / seconds:,.0f} a second"

        return [
            ("subscriptions, servers", f"{self.subscriptions:,}, {self.servers}"),
            ("imported, JSON lines", rate(self.imported)),
            ("exported, JSON lines", rate(self.exported)),
            ("exported, Parquet", rate(self.exported_parquet)),
            ("imported again, Parquet", rate(self.imported_again)),
            ("exported again, JSON lines", rate(self.exported_again)),
            ("lines that differ", f"{self.different:,}"),
        ]


def right(outcome: Bulk) -> bool:
    return not outcome.different


def show(outcome: Bulk, *, as_json: bool) -> None:
    show_one("Subscriptions in bulk", outcome, as_json=as_json)


def run(*, servers: int, subscriptions: int, seed: int, progress: Progress) -> Bulk:
    with tempfile.TemporaryDirectory(prefix="edn-bench-bulk-") as name:
        folder = Path(name)
        source = folder / "source.jsonl"
        progress.say("drawing")
        _draw(source, subscriptions, seed)
        first, parquet, second = folder / "first.jsonl", folder / "first.parquet", folder / "second.jsonl"
        (folder / "one").mkdir()
        with network(folder / "one", servers) as (url, _):
            _topic(url)
            imported = _timed(progress, "importing", "import", str(source), "--url", url)
            exported = _timed(progress, "exporting", "export", str(first), "--json-lines", "--url", url)
            as_parquet = _timed(progress, "exporting", "export", str(parquet), "--url", url)
        (folder / "two").mkdir()
        with network(folder / "two", servers) as (url, _):
            _topic(url)
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
            lo, hi = uniform_rectangles(rng, min(STEP, count - start), len(NAMES))
            for row in range(len(lo)):
                bounds = zip(NAMES, lo[row].tolist(), hi[row].tolist(), strict=True)
                line = {
                    "id": f"sub{start + row}",
                    "topic": TOPIC,
                    "filter": {name: {"between": [low, high]} for name, low, high in bounds},
                    "sink": {"url": f"{NOWHERE}/{row % 100}", "recipient": f"r{row}"},
                    "state": "active",
                    "owner": "bench",
                }
                file.write(encode(line) + b"\n")


def _topic(url: str) -> None:
    with Client(url) as client:
        client.create_topic(TOPIC, dict.fromkeys(NAMES, "number"))


def _timed(progress: Progress, what: str, *arguments: str) -> float:
    progress.say(what)
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "edn.cli", *arguments], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"edn {' '.join(arguments)}: {ran.stderr[-2000:]}")
    return time.perf_counter() - began


def _differing(one: Path, other: Path) -> int:
    """Lines that are in one of the files only, or more often than in the other."""
    counted = Counter(_told(one))
    counted.subtract(_told(other))
    return sum(abs(left) for left in counted.values())


def _told(path: Path) -> Iterator[bytes]:
    """Each line as what a subscriber said: no server, no times of this network, nothing that was left out."""
    with path.open("rb") as file:
        for line in file:
            found = msgspec.json.decode(line)
            said = {name: _given(found.get(name)) for name in _SAID}
            yield msgspec.json.encode(said, order="sorted")


def _given(value: Any) -> Any:
    """Null is what was not given."""
    if not isinstance(value, dict):
        return value
    return {name: _given(one) for name, one in value.items() if one is not None}

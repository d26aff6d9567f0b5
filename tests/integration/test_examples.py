"""Every example runs against a network and says what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.network import Network

SERVERS = 2
EXAMPLES = Path(__file__).parents[2] / "examples"
#: what each prints, in any order
SAID = {
    "stock_alerts": {
        "ann: GE at 31.2 (+5.8 %)",
        "ben: KO at 55.0 (-3.1 %)",
        "cleo: GE at 31.2 (+5.8 %)",
    },
    "auction_watch": {"lamps that end soon: lot 7, lamp, 40", "dora was outbid: lot 8, chair, 110"},
    "sensor_thresholds": {"day:   n2 and n3", "night: n1", "a quiet sensor would be heard by 0"},
}


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAID.keys()


@pytest.mark.parametrize("name", sorted(SAID))
def test_an_example_says_what_it_should(network: Network, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), network.url],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == SAID[name]

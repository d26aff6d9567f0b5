"""`edn explain` writes rectangles as a person would, and says how a filter is explained."""

from __future__ import annotations

import math

from typer.testing import CliRunner

from edn.cli.app import app
from edn.cli.explain import _with_open_ends


def test_a_bound_next_to_a_round_number_is_written_as_an_open_one() -> None:
    rectangle = {
        "price": {"gte": math.nextafter(30.0, math.inf), "lte": math.nextafter(40.0, -math.inf)},
        "volume": {"gte": 5, "lte": 7.25},
        "symbol": "GE",
    }
    assert _with_open_ends(rectangle) == {
        "price": {"gt": 30.0, "lt": 40.0},
        "volume": {"gte": 5, "lte": 7.25},
        "symbol": "GE",
    }


def test_a_filter_in_the_place_of_an_event_is_refused_with_the_option() -> None:
    result = CliRunner().invoke(app, ["explain", "stocks", "price > 3"])
    assert result.exit_code == 2
    assert "--filter" in result.stderr

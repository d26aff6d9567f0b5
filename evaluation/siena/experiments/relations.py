"""000, 6.1: Complexity of the relations.

How does the work of the covering relations grow with the n constraints of one filter and the m of the
other? On the product's own filters, with numbers as attributes. Work is counted as lines of Python that are
executed, which is the same on every machine; attributes of a notification are decoded by compiled code,
which is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from edn.model.filter import BoundFilter, Filter
from edn.model.schema import Schema
from evaluation.experiment import Claim, Experiment, Outcome, Progress, Series
from evaluation.figures import Canvas
from evaluation.siena.grid import exponent
from evaluation.siena.patterns import advertisement


def count_lines(call: Callable[[], object]) -> int:
    """Counts the lines of Python that a call executes."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def _filter(schema: Schema, count: int, least: int) -> BoundFilter:
    return Filter.parse({f"a{at}": {"gt": least} for at in range(count)}).bind(schema)


def _advertised(count: int, width: int, least: int) -> BoundFilter:
    schema = Schema.parse({f"a{at}": "number" for at in range(width)})
    return advertisement(schema, {f"a{at}": [{"gt": least}] for at in range(count)})


def work(relation: str, n: int, m: int) -> int:
    """Counts the work of one comparison: n constraints against m, on equal attributes as far as they go."""
    schema = Schema.parse({f"a{at}": "number" for at in range(max(n, m))})
    if relation == "n≺f":
        filter, values = _filter(schema, n, 0), {f"a{at}": 1.0 for at in range(max(n, m))}
        return count_lines(lambda: filter.matches(values))
    if relation == "f≺f":
        one, other = _filter(schema, n, 0), _filter(schema, m, 1)
        return count_lines(lambda: one.covers(other))
    if relation == "a≺a":
        width = max(n, m)
        one, other = _advertised(n, width, 0), _advertised(m, width, 1)
        return count_lines(lambda: one.covers(other))
    one, other = _advertised(n, max(n, m), 0), _filter(schema, m, 1)
    return count_lines(lambda: one.overlaps(other))


RELATIONS = ("n≺f", "f≺f", "a≺a", "f≺a")


def run(seed: int, progress: Progress, *, sizes: tuple[int, ...]) -> Outcome:
    outcome = Outcome()
    fixed = sizes[len(sizes) // 2]
    for done, relation in enumerate(RELATIONS):
        progress(done, len(RELATIONS) + 1, relation)
        for name, pairs in {
            "n": [(size, fixed) for size in sizes],
            "m": [(fixed, size) for size in sizes],
            "both": [(size, size) for size in sizes],
        }.items():
            lines = [float(work(relation, n, m)) for n, m in pairs]
            outcome.series[f"{relation} by {name}"] = Series(sizes, lines)
    progress(len(RELATIONS), len(RELATIONS) + 1, "pattern")
    schema = Schema.parse({f"a{at}": "number" for at in range(fixed)})
    values = {f"a{at}": 1.0 for at in range(fixed)}
    step = _filter(schema, fixed, 0)
    lines = [float(count_lines(lambda: [step.matches(values) for _ in range(length)])) for length in sizes]  # noqa: B023
    outcome.series["pattern by l"] = Series(sizes, lines)
    return outcome


def draw(canvas: Canvas) -> None:
    for panel, name in zip(canvas.panels(3), ("n", "m", "both"), strict=True):
        panel.labels(f"Work by {name}", name, "lines executed")
        panel.curves([f"{relation} by {name}" for relation in RELATIONS])
        panel.log_log()


def _at_most(outcome: Outcome, limits: dict[str, float]) -> list[bool]:
    return [
        exponent(outcome.series[name].x, outcome.y(name)) <= limit + 0.15 for name, limit in limits.items()
    ]


EXPERIMENT = Experiment(
    name="siena-relations",
    text=__doc__,
    sizes={
        "tiny": {"sizes": (4, 8)},
        "quick": {"sizes": (4, 8, 16)},
        "full": {"sizes": (4, 8, 16, 32)},
    },
    seeds={"tiny": 1, "quick": 1, "full": 1},
    run=run,
    draw=draw,
    claims=(
        Claim(
            "C22. n≺f is O(n + m).",
            {
                "exponents at most 1 + 0.15": lambda o: _at_most(
                    o, {"n≺f by n": 1, "n≺f by m": 1, "n≺f by both": 1}
                )
            },
            strict=True,
        ),
        Claim(
            "C22. f≺f is O(nm).",
            {
                "exponents at most 1, 1, 2 + 0.15": lambda o: _at_most(
                    o, {"f≺f by n": 1, "f≺f by m": 1, "f≺f by both": 2}
                )
            },
            strict=True,
        ),
        Claim(
            "C22. a≺a is O(nm).",
            {
                "exponents at most 1, 1, 2 + 0.15": lambda o: _at_most(
                    o, {"a≺a by n": 1, "a≺a by m": 1, "a≺a by both": 2}
                )
            },
            strict=True,
            why="Our advertisements are general filters: a union per attribute of the schema. Comparing two"
            " of them intersects unions, whose number of boxes grows beyond the product; a limit on the"
            " work ends it.",
        ),
        Claim(
            "C22. f≺a is O(nm).",
            {
                "exponents at most 1, 1, 2 + 0.15": lambda o: _at_most(
                    o, {"f≺a by n": 1, "f≺a by m": 1, "f≺a by both": 2}
                )
            },
            strict=True,
            why="As for a≺a: the boxes of a union per attribute.",
        ),
        Claim(
            "C22. A pattern of length l is O(l (n + m)).",
            {"exponent at most 1 + 0.15": lambda o: _at_most(o, {"pattern by l": 1})},
            strict=True,
        ),
    ),
)

"""`docs/evaluation.md`, written from results alone: nothing in it is typed.

First the table of all claims, then a section an experiment with its figure, its readings and what differs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from evaluation.claims import Claim, Judged, Number, Order, Span, judge
from evaluation.experiment import AnyExperiment
from evaluation.results import Record

HEAD = """# The published evaluation, reproduced

*Written by `edn evaluate`; change the experiments in `evaluation/`, not this page.*

The design of this network was published with some thirty claims about it ("Summary-based Routing for
Content-based Event Distribution Networks", Wang, Qiu, Verbowski, Achlioptas, Das and Larson, Microsoft
Research). Each is run here on the product's own code: its placement policies and offline partitioning, its
summaries and cuts, its routing kernel, its throughput model and its controllers.

```
make evaluate                     # quick sizes, all experiments; a page like this in evaluation-results/
edn evaluate --full               # sizes near the published ones; writes this page
edn evaluate figure-7 --seeds 3   # one experiment
edn evaluate --render             # this page and its figures again, from the results that are kept
```

**Verdicts** are computed. A number is *reproduced* when ours is within 15 % of it, and *partly* when only the
direction is the same. A span ("by 20 to 60 %") is reproduced when all of ours lie in it or within 15 % of
its ends, and partly when the direction is the same or half of ours lie in it. A claim without a number is an
order: ours is the share of the compared points at which it holds; all of them is reproduced, half or more is
partly. Everything else is *not*. Ours is the mean over the seeds ± their standard deviation.

Each section ends with the sizes and seeds that its results are of, quick or full; the last table has the
machine and the date.

Where the published text is silent there are several **readings**. The one that counts is named with the
claim; all others that were tried are in the experiment's section, with what they would have given, whether
they fit or not.
"""

OURS = """## Ours

What is not in the published work, in the same form. Here a claim is our own, and *holds* or does not.
"""


def write(
    path: Path, figures: Path, kept: Sequence[tuple[AnyExperiment, Record]], missing: Sequence[AnyExperiment]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(kept, missing, Path(os.path.relpath(figures, path.parent))))


def text(
    kept: Sequence[tuple[AnyExperiment, Record]], missing: Sequence[AnyExperiment], figures: Path
) -> str:
    known = [(one, record) for one, record in kept if not _ours(one)]
    own = [(one, record) for one, record in kept if _ours(one)]
    parts = [HEAD, _counts(known), _table(known)]
    if missing:
        names = ", ".join(f"`{one.name}`" for one in missing)
        parts.append(f"Not run here: {names}.\n")
    parts.append("## Experiment by experiment\n")
    parts += [_section(one, record, figures) for one, record in known]
    if own:
        parts += [OURS, _table(own)]
        parts += [_section(one, record, figures) for one, record in own]
    parts.append(_machines(kept))
    return "\n".join(parts)


def _counts(kept: Sequence[tuple[AnyExperiment, Record]]) -> str:
    tally = Counter(judge(claim, record.outcomes)[0].verdict for one, record in kept for claim in one.claims)
    every = sum(tally.values())
    if not every:
        return ""
    return (
        f"## All claims\n\nOf {every} claims {tally['reproduced']} are reproduced, {tally['partly']} partly, "
        f"{tally['not']} are not: {tally['reproduced'] / every:.0%} reproduced, "
        f"{(tally['reproduced'] + tally['partly']) / every:.0%} reproduced or partly.\n"
    )


def _table(kept: Sequence[tuple[AnyExperiment, Record]]) -> str:
    rows = []
    for one, record in kept:
        for number, claim in enumerate(one.claims):
            first = judge(claim, record.outcomes)[0]
            where = f"[{one.title if _ours(one) else one.line}](#{one.name})" if not number else ""
            cells = [
                where,
                claim.text,
                published(claim),
                ours(claim, first),
                _word(first, one),
                first.reading,
            ]
            rows.append(_row(one, cells))
    head = ["", "claim", "published", "ours", "verdict", "under the reading"]
    return "\n".join([*_head(kept[0][0], head), *rows]) + "\n" if kept else ""


def _ours(one: AnyExperiment) -> bool:
    return one.line == "ours"


def _row(one: AnyExperiment, cells: list[str]) -> str:
    """What is ours has no published number."""
    return f"| {' | '.join(cell for at, cell in enumerate(cells) if at != 2 or not _ours(one))} |"


def _head(one: AnyExperiment, cells: list[str]) -> list[str]:
    head = _row(one, cells)
    return [head, "|" + "---|" * (head.count("|") - 1)]


def _section(one: AnyExperiment, record: Record, figures: Path) -> str:
    line = "" if _ours(one) else f"{one.line}: "
    parts = [
        f'<a id="{one.name}"></a>',
        "",
        f"### {line}{one.title}",
        "",
        f"{one.question} {one.setting}",
        "",
        f"![{one.title}]({(figures / (one.name + '.png')).as_posix()})",
        "",
        *_head(one, ["claim", "reading", "published", "ours", "verdict"]),
    ]
    for claim in one.claims:
        for number, judged in enumerate(judge(claim, record.outcomes)):
            said = claim.text if not number else ""
            told = published(claim) if not number else ""
            parts.append(_row(one, [said, judged.reading, told, ours(claim, judged), _word(judged, one)]))
    whys = dict.fromkeys(
        claim.why
        for claim in one.claims
        if claim.why and any(judged.verdict != "reproduced" for judged in judge(claim, record.outcomes))
    )
    if whys:
        parts += ["", "Why it differs:", "", *(f"- {why}" for why in whys)]
    sizes = ", ".join(f"{name.replace('_', ' ')} {_size(size)}" for name, size in record.sizes.items())
    parts += [
        "",
        f"*{record.scale} sizes: {sizes}; seeds {', '.join(map(str, record.seeds))}; "
        f"{record.cpu_seconds:,.0f} s of processor time.*",
        "",
    ]
    return "\n".join(parts)


def _size(size: object) -> str:
    if isinstance(size, list | tuple):
        return "/".join(_size(one) for one in size)
    return f"{size:,}" if isinstance(size, int) else str(size)


def published(claim: Claim) -> str:
    """The number of the claim as it was published."""
    paper = claim.paper
    if isinstance(paper, Order):
        return "an order"
    if isinstance(paper, Number):
        return claim.show.format(paper.paper)
    return f"{claim.show.format(paper.low)} … {claim.show.format(paper.high)}"


def ours(claim: Claim, judged: Judged) -> str:
    if isinstance(claim.paper, Order):
        return f"holds at {judged.ours[0]:.0%}"
    if isinstance(claim.paper, Span) and len(judged.ours) > 1:
        low, high = min(judged.ours), max(judged.ours)
        return f"{claim.show.format(low)} … {claim.show.format(high)} ± {_spread(claim, max(judged.spread))}"
    return f"{claim.show.format(judged.ours[0])} ± {_spread(claim, judged.spread[0])}"


def _spread(claim: Claim, spread: float) -> str:
    return claim.show.format(spread).lstrip("+")


def _word(judged: Judged, one: AnyExperiment) -> str:
    if not _ours(one):
        return f"**{judged.verdict}**" if judged.verdict == "not" else judged.verdict
    return {"reproduced": "holds", "partly": "partly", "not": "**does not hold**"}[judged.verdict]


def _machines(kept: Sequence[tuple[AnyExperiment, Record]]) -> str:
    lines = ["## Where and when", "", "| experiment | sizes | date | machine |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {record.scale} | {record.date} | {record.machine} |" for one, record in kept]
    return "\n".join(lines) + "\n"

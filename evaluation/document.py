"""Writes a page per suite of experiments, such as `docs/evaluation.md`, from stored results.

First the table of all claims, then a section per experiment with its figure, readings and differences.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from evaluation.experiment import Claim, Experiment, Judged, bounds, judge
from evaluation.results import Record

#: experiments that were run, with their results
Kept = Sequence[tuple[Experiment, Record]]

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
edn evaluate --render             # this page and its figures again, from stored results
```

**Verdicts** are computed. A number is *reproduced* if ours is within 15 % of it, and *partly* reproduced if
only the direction is the same. A range ("by 20 to 60 %") is reproduced if all of ours lie in it or within
15 % of its ends, and partly if the direction is the same or half of ours lie in it. A claim without a number
is an order: ours is the share of the compared points at which it holds. All of them is reproduced, half or
more is partly. Everything else is *not*. Ours is the mean over the seeds ± their standard deviation.

Each section ends with the sizes and seeds of its results, quick or full; the last table has the machine and
the date.

Where the published text is ambiguous there are several **readings**. The table names the one that counts;
the experiment's section has the results of all others that were tried, whether they fit or not.
"""

OURS = """## Ours

Experiments that are not part of the published work, in the same form. Each claim is our own, and *holds* or
does not.
"""


def write(path: Path, figures: Path, kept: Kept, missing: Sequence[Experiment], head: str = HEAD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(kept, missing, Path(os.path.relpath(figures, path.parent)), head))


def text(kept: Kept, missing: Sequence[Experiment], figures: Path, head: str = HEAD) -> str:
    known = [(one, record) for one, record in kept if not one.is_ours]
    own = [(one, record) for one, record in kept if one.is_ours]
    parts = [head, _counts(known), _groups(known), _table(known)]
    if missing:
        names = ", ".join(f"`{one.name}`" for one in missing)
        parts.append(f"Not run here: {names}.\n")
    parts.append("## Experiment by experiment\n")
    parts += [_section(one, record, figures) for one, record in known]
    if own:
        parts += [OURS, _table(own)]
        parts += [_section(one, record, figures) for one, record in own]
    parts.append(_machines(kept))
    return "\n".join(part for part in parts if part)


def _counts(kept: Kept) -> str:
    tally = Counter(judge(claim, record.outcomes)[0].verdict for one, record in kept for claim in one.claims)
    every = sum(tally.values())
    if not every:
        return ""
    undecided = f", {tally['undecided']} undecided" if tally["undecided"] else ""
    return (
        f"## All claims\n\nOf {every} claims {tally['reproduced']} are reproduced, {tally['partly']} partly, "
        f"{tally['not']} are not{undecided}: {tally['reproduced'] / every:.0%} reproduced, "
        f"{(tally['reproduced'] + tally['partly']) / every:.0%} reproduced or partly.\n"
    )


def _groups(kept: Kept) -> str:
    """Sums up claims that are numbered (C1, C2, …) and have several parts each."""
    found: dict[str, set[str]] = {}
    for one, record in kept:
        for claim in one.claims:
            number = re.match(r"C\d+(?=\. )", claim.text)
            if number:
                found.setdefault(number.group(), set()).add(judge(claim, record.outcomes)[0].verdict)
    if not found:
        return ""
    names = sorted(found, key=lambda name: int(name[1:]))
    groups = {
        "wholly reproduced": [name for name in names if found[name] == {"reproduced"}],
        "not reproduced": [name for name in names if found[name] == {"not"}],
    }
    groups["in part"] = [name for name in names if not any(name in some for some in groups.values())]
    lines = [
        f"- {len(some)} of {len(names)} {what}: {', '.join(some)}" for what, some in groups.items() if some
    ]
    return "By number, with all parts of a claim:\n\n" + "\n".join(lines) + "\n"


def _table(kept: Kept) -> str:
    rows = []
    for one, record in kept:
        for number, claim in enumerate(one.claims):
            first = judge(claim, record.outcomes)[0]
            where = f"[{one.title if one.is_ours else one.line}](#{one.name})" if not number else ""
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


def _row(one: Experiment, cells: list[str]) -> str:
    """Formats a row; our own experiments have no published number."""
    return f"| {' | '.join(cell for at, cell in enumerate(cells) if at != 2 or not one.is_ours)} |"


def _head(one: Experiment, cells: list[str]) -> list[str]:
    head = _row(one, cells)
    return [head, "|" + "---|" * (head.count("|") - 1)]


def _section(one: Experiment, record: Record, figures: Path) -> str:
    line = "" if one.is_ours else f"{one.line}: "
    parts = [
        f'<a id="{one.name}"></a>',
        "",
        f"### {line}{one.title}",
        "",
        one.about,
        "",
        f"![{one.title}]({(figures / (one.name + '.png')).as_posix()})",
        "",
        *_head(one, ["claim", "reading", "published", "ours", "verdict"]),
    ]
    for claim in one.claims:
        for number, judged in enumerate(judge(claim, record.outcomes)):
            first = (claim.text, published(claim)) if not number else ("", "")
            cells = [first[0], judged.reading, first[1], ours(claim, judged), _word(judged, one)]
            parts.append(_row(one, cells))
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
    """Formats the published number of a claim."""
    if claim.paper is None:
        return "an order"
    low, high = (claim.show.format(end) for end in bounds(claim.paper))
    return low if low == high else f"{low} … {high}"


def ours(claim: Claim, judged: Judged) -> str:
    if claim.paper is None:
        noise = f", {judged.noise:.0%} in the noise" if judged.noise else ""
        return f"holds at {judged.ours[0]:.0%}{noise}"
    spread = claim.show.format(max(judged.spread)).lstrip("+")
    low, high = (claim.show.format(end(judged.ours)) for end in (min, max))
    return f"{low} ± {spread}" if len(judged.ours) == 1 else f"{low} … {high} ± {spread}"


def _word(judged: Judged, one: Experiment) -> str:
    if not one.is_ours:
        return f"**{judged.verdict}**" if judged.verdict == "not" else judged.verdict
    if judged.verdict == "undecided":
        return "undecided"
    return {"reproduced": "holds", "partly": "partly", "not": "**does not hold**"}[judged.verdict]


def _machines(kept: Kept) -> str:
    lines = ["## Where and when", "", "| experiment | sizes | date | machine |", "|---|---|---|---|"]
    lines += [f"| `{one.name}` | {record.scale} | {record.date} | {record.machine} |" for one, record in kept]
    return "\n".join(lines) + "\n"

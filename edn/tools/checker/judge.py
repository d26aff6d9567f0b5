"""Judges a recording: every subscription against every event that can concern it.

Theory of operation
-------------------
`obligations` says of each pair whether it may and whether it must be notified. What was notified is compared
with that:

    due and not accepted by the subscriber      missing, if the recording can know: see `doubts`
    notified and not allowed                    unexpected
    accepted under two webhook-ids              duplicate; under the same one again it is a permitted repeat
    notified with other attributes              altered

A subscription's events are a slice of its topic's, its notifications a slice of all; nothing here looks at
all pairs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from edn.tools.checker.history import History, build_history
from edn.tools.checker.lives import Judged, LifeJudge
from edn.tools.checker.recording.reading import Recording, Told, read_recording
from edn.tools.checker.stories import Stories
from edn.tools.checker.timeline import SECOND
from edn.tools.checker.values import microseconds, read_event
from edn.tools.checker.verdicts import Counts, Fault, Findings, Report, Verdict

#: violations of each kind that are explained
EXPLAINED = 10


def check_recording(
    *paths: Path | str,
    ordered: bool = False,
    within: float | None = None,
    explained: int = EXPLAINED,
) -> Report:
    """Check a recording of one file or several; raises `RecordingError` if it cannot be read.

    `ordered`: being out of order is a violation, too. `within`: so is being notified later than so many
    seconds after the publisher's answer. `explained`: how many violations of each kind are told in full.
    """
    return judge(
        read_recording(Path(path) for path in paths), ordered=ordered, within=within, explained=explained
    )


def judge(
    recording: Recording, *, ordered: bool = False, within: float | None = None, explained: int = EXPLAINED
) -> Report:
    history = build_history(recording)
    findings = Findings(explained)
    stories = Stories(recording, history)
    counts = Counts(
        operations=len(recording.operations),
        subscriptions=len(history.lives),
        events=sum(len(events.numbers) for events in history.topics.values()),
        posts=len(recording.posts),
    )
    _judge_lives(recording, history, findings, stories, counts, within)
    _judge_contents(recording, history, findings, stories)
    _judge_webhooks(recording, findings, stories)
    if not recording.whole:
        findings.leave_open("the recording was cut off before its end")
    if not counts.due and not len(recording.pair_post):
        findings.leave_open("nothing was due and nothing was notified: the recording shows nothing")
    informative = [] if ordered else [Fault.OUT_OF_ORDER.value]
    broken = any(count for fault, count in findings.faults.items() if fault not in informative)
    verdict = Verdict.VIOLATED if broken else Verdict.UNKNOWN if findings.undecided else Verdict.HOLDS
    return Report(
        verdict=verdict,
        counts=counts,
        faults=findings.faults,
        informative=informative,
        violations=findings.violations,
        undecided=findings.undecided,
    )


def _judge_lives(
    recording: Recording,
    history: History,
    findings: Findings,
    stories: Stories,
    counts: Counts,
    within: float | None,
) -> None:
    bound = None if within is None else round(within * SECOND)
    life_judge = LifeJudge(recording, history, findings, stories, bound)
    owners = np.frombuffer(recording.pair_subscription, dtype=np.int32)
    order = np.argsort(owners, kind="stable")
    names = recording.subscriptions.all()
    begins = np.searchsorted(owners[order], np.arange(len(names) + 1)) if len(names) else np.zeros(1, np.intp)
    notified = dict(zip(names, range(len(names)), strict=True))
    none: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
    for name in dict.fromkeys([*history.lives, *names]):
        number = notified.get(name)
        rows = none if number is None else order[begins[number] : begins[number + 1]]
        judged: Judged = life_judge.judge(name, rows)
        counts.due += judged.due
        counts.notified += judged.notified
        counts.optional += judged.optional
        counts.repeats += judged.repeats


def _judge_contents(recording: Recording, history: History, findings: Findings, stories: Stories) -> None:
    """Whether notifications say what was published."""
    for number, wordings in recording.told.items():
        topic, _ = stories.name(number)
        events = history.topics.get(topic)
        index = events.index.get(number) if events is not None else None
        if events is None or index is None:
            continue  # never published: unexpected, and said so there
        publishing = events.publishings[index]
        if publishing.ambiguous or publishing.contradicted:
            continue
        altered = []
        for told in wordings:
            reason = _alteration(told, publishing.values, publishing.given.get("$time"), recording, topic)
            if reason is not None:
                altered.append((reason, number, told.place))
        findings.add(Fault.ALTERED, altered, stories.altered_event)
    twice = "two different contents were accepted under this id"
    findings.add(
        Fault.ALTERED,
        [(twice, number, publishing.attempts[-1].place) for number, publishing in history.contradicted],
        stories.altered_event,
    )


def _alteration(
    told: Told, values: dict[str, object], stamp: object, recording: Recording, topic: str
) -> str | None:
    try:
        attributes = msgspec.json.decode(told.attributes)
        if not isinstance(attributes, dict):
            return f"it was notified with attributes that are no object: {told.attributes.decode()[:200]}"
        same = read_event(attributes, recording.topics[topic].attributes) == values
        if (
            same
            and isinstance(stamp, str)
            and (told.time is None or microseconds(told.time) != microseconds(stamp))
        ):
            return f"it was published with the time {stamp} and notified with {told.time}"
        return None if same else f"it was notified as {told.attributes.decode()[:500]}"
    except (ValueError, msgspec.DecodeError) as error:
        return f"it was notified as {told.attributes.decode(errors='replace')[:500]}: {error}"


def _judge_webhooks(recording: Recording, findings: Findings, stories: Stories) -> None:
    """One webhook-id has one content: a subscriber that drops repeats would lose a second one."""
    firsts: dict[tuple[str, str], int] = {}
    for number, post in enumerate(recording.posts):
        first = firsts.setdefault((post.address, post.webhook), number)
        if first == number:
            continue
        before = recording.posts[first]
        same = all(
            column[before.begin : before.end] == column[post.begin : post.end]
            for column in (recording.pair_subscription, recording.pair_event, recording.pair_recipient)
        )
        if not same:
            findings.add(Fault.ALTERED, [(first, number)], stories.reused_webhook)
    findings.add(Fault.ALTERED, recording.malformed, stories.malformed)

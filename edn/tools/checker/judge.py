"""Judges a recording: every subscription against every event that can concern it.

Theory of operation
-------------------
`obligations` decides for each pair whether it may and whether it must be notified. The recorded notifications
are compared with that:

    due and not accepted by the subscriber      missing, if the recording is conclusive: see `doubts`
    notified and not allowed                    unexpected
    accepted under two webhook-ids              duplicate; a repeat under the same one is permitted
    notified with other fields                  altered

A subscription's events are a slice of its topic's events, its notifications a slice of all; no step visits
all pairs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edn.tools.checker.advertising import judge_advertising
from edn.tools.checker.history import History, build_history
from edn.tools.checker.lives import LifeJudge
from edn.tools.checker.recording.reading import EventContent, Recording, read_recording
from edn.tools.checker.sequences.judge import has_sequence, judge_sequences
from edn.tools.checker.stories import Stories
from edn.tools.checker.timeline import SECOND
from edn.tools.checker.values import fields_of, is_same, microseconds
from edn.tools.checker.verdicts import Counts, Fault, Findings, Report, Verdict

#: violations per kind that are explained
EXPLAINED = 10


def check_recording(
    *paths: Path | str,
    ordered: bool = False,
    within: float | None = None,
    explained: int = EXPLAINED,
) -> Report:
    """Checks a recording of one or more files; raises `RecordingError` if it cannot be read.

    `ordered`: notifications out of order are violations, too. `within`: so are notifications more than so
    many seconds after the publisher's answer. `explained`: violations per kind that are explained.
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
    bound = None if within is None else round(within * SECOND)
    _judge_lives(LifeJudge(recording, history, findings, stories, counts, bound), recording, history)
    judge_sequences(recording, history, findings, stories, counts)
    _judge_contents(recording, history, findings, stories)
    _judge_webhooks(recording, findings, stories)
    counts.guarded = judge_advertising(recording, findings)
    if not recording.whole:
        findings.leave_open("the recording was cut off before its end")
    if not (counts.due or len(recording.pair_post) or counts.guarded or counts.sequences):
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


def _judge_lives(life_judge: LifeJudge, recording: Recording, history: History) -> None:
    owners = np.frombuffer(recording.pair_subscription, dtype=np.int32)
    order = np.argsort(owners, kind="stable")
    names = recording.subscriptions.all()
    begins = np.searchsorted(owners[order], np.arange(len(names) + 1))
    none: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
    for name in dict.fromkeys([*history.lives, *names]):
        if has_sequence(history.lives.get(name)):
            continue
        number = recording.subscriptions.of.get(name)
        rows = none if number is None else order[begins[number] : begins[number + 1]]
        life_judge.judge(name, rows)


def _judge_contents(recording: Recording, history: History, findings: Findings, stories: Stories) -> None:
    """Compares the fields of notified events with those published."""
    for number, contents in recording.contents.items():
        topic, _ = stories.name(number)
        events = history.topics.get(topic)
        index = events.index.get(number) if events is not None else None
        if events is None or index is None:
            continue  # never published: reported as unexpected
        publishing = events.publishings[index]
        if publishing.ambiguous or publishing.contradicted:
            continue
        altered = []
        for content in contents:
            reason = _alteration(content, publishing.given)
            if reason is not None:
                altered.append((reason, number, content.place))
        findings.add(Fault.ALTERED, altered, stories.altered_event)
    twice = "two different contents were accepted under this id"
    findings.add(
        Fault.ALTERED,
        [(twice, number, publishing.attempts[-1].place) for number, publishing in history.contradicted],
        stories.altered_event,
    )


def _alteration(content: EventContent, given: dict[str, Any]) -> str | None:
    """Says how a notified event differs from the published one; None if it does not."""
    try:
        attributes = msgspec.json.decode(content.attributes)
        if not isinstance(attributes, dict):
            return f"it was notified with attributes that are no object: {content.attributes.decode()[:200]}"
        stamp = given.get("$time")
        same = is_same(attributes, fields_of(given))
        if (
            same
            and isinstance(stamp, str)
            and (content.time is None or microseconds(content.time) != microseconds(stamp))
        ):
            return f"it was published with the time {stamp} and notified with {content.time}"
        return None if same else f"it was notified as {content.attributes.decode()[:500]}"
    except (ValueError, msgspec.DecodeError) as error:
        return f"it was notified as {content.attributes.decode(errors='replace')[:500]}: {error}"


def _judge_webhooks(recording: Recording, findings: Findings, stories: Stories) -> None:
    """Finds webhook-ids with two contents: a subscriber that drops repeats would lose the second."""
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
        if not same or before.complete != post.complete:
            findings.add(Fault.ALTERED, [(first, number)], stories.reused_webhook)
    findings.add(Fault.ALTERED, recording.malformed, stories.malformed)

"""`edn subscribe`, `pause`, `resume`, `unsubscribe`, `subscriptions`, and `edn subscription`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edn.cli.arguments import FILTER_HELP, read_filter, read_secret_file, read_steps
from edn.cli.output import JsonLinesOption, condition_text, filter_text, for_each, show, show_rows
from edn.cli.sink_options import (
    SETTINGS,
    CredentialsOption,
    ExponentialOption,
    GiveUpOption,
    HeaderOption,
    OrderedOption,
    PermanentOption,
    RateOption,
    ScheduleOption,
    TimeoutOption,
    read_settings,
)
from edn.formats.counts import counted
from edn.tools.console import DEFAULT_URL, USAGE, JsonOption, UrlOption, connected, fail, say, show_json

if TYPE_CHECKING:
    from edn.client import Client, Sink, Subscription

app = typer.Typer(help="Show, change and renew a subscription.", no_args_is_help=True)

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of subscriptions.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the subscription.")]
FormatOption = Annotated[
    str | None,
    typer.Option(
        help="Format of notifications: json, cloudevents-binary, cloudevents-structured or cloudevents-batch."
    ),
]
ConsentOption = Annotated[
    bool | None,
    typer.Option("--consent/--no-consent", help="Ask the URL for its consent before the first delivery."),
]


def subscribe(
    topic: Annotated[
        str, typer.Argument(help="Topic, or subtree: 'stocks.**' is stocks and all topics below it.")
    ],
    filter: Annotated[str | None, typer.Argument(help=FILTER_HELP)] = None,
    where: Annotated[str | None, typer.Option("--filter", help="The filter, as an option.")] = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            "--then",
            metavar="STEP",
            help="Next step of a sequence: a filter, 'TOPIC: FILTER', or an object with topic, filter, times "
            "and unless. Notify once when events fill all steps in order.",
        ),
    ] = None,
    times: Annotated[
        int | None, typer.Option(help="How many events fill the first step of a sequence.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(help="Attribute whose value all events of a sequence share.")
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="Longest time between the first and the last event: 5m or PT5M.")
    ] = None,
    settle: Annotated[
        str | None, typer.Option(help="How long to wait for late events of a sequence: 2s or PT2S.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="URL that notifications are posted to.")] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Make a stream, to be read with `edn listen --id`.")
    ] = False,
    recipient: Annotated[str | None, typer.Option(help="Recipient behind the URL.")] = None,
    format: FormatOption = None,
    consent: ConsentOption = None,
    expires: Annotated[
        str | None, typer.Option(help="Expiry: a duration such as 1h or P30D, or an RFC 3339 time.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="Id of the subscription; repeating it creates no second one.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Owner, to list subscriptions by.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Replay retained events from: now (none), an RFC 3339 time, or 1h for an hour ago. "
            "Default: all of them.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None, typer.Option(help="File with the signing secret. Default: a generated one.")
    ] = None,
    header: HeaderOption = None,
    credentials_file: CredentialsOption = None,
    timeout: TimeoutOption = None,
    schedule: ScheduleOption = None,
    exponential: ExponentialOption = None,
    give_up: GiveUpOption = None,
    permanent: PermanentOption = None,
    rate: RateOption = None,
    ordered: OrderedOption = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Subscribe a URL to the events that match a filter, and print the subscription's id.

    Every matching event that is accepted after this command returns is delivered. With --stream there is no
    URL: a reader connects to the network.

    With --then it is a sequence: one notification when an event that matches the filter is followed by one
    for each further step.
    """
    if stream == (to is not None):
        fail("give either --to URL or --stream", USAGE)
    if filter is not None and where is not None:
        fail("give the filter once: as an argument or with --filter", USAGE)
    condition = where if filter is None else filter
    if not then and (times is not None or by or within is not None or settle is not None):
        fail("--times, --by, --within and --settle need --then", USAGE)
    sequence = read_steps(condition, times, then) if then else None
    settings = read_settings(
        header=header,
        credentials_file=credentials_file,
        timeout=timeout,
        schedule=schedule,
        exponential=exponential,
        give_up=give_up,
        permanent=permanent,
        rate=rate,
        ordered=ordered,
    )
    with connected(url) as client:
        made = client.subscribe(
            topic,
            None if sequence else read_filter(condition),
            sequence=sequence,
            by=by or None,
            within=within,
            settle=settle,
            url=to,
            recipient=recipient,
            format=format,
            consent=consent,
            expires=expires,
            id=id,
            owner=owner,
            since=since,
            secret=read_secret_file(secret_file),
            **settings,
        )
    show(json, made, made.id)
    warn(made)
    if not json and made.sink is not None and made.sink.secret is not None:
        say(f"signing secret: {made.sink.secret}\nCopy it now; it will not be shown again.")


def warn(made: Subscription) -> None:
    """Says what the network points out about a subscription."""
    if made.warning is not None:
        say(f"warning: {made.warning}")


def pause(ids: IdsArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Pause subscriptions. Their notifications are buffered in order."""
    with connected(url) as client:
        for_each(ids, lambda id: show(json, client.pause(id), f"paused {id}"))


def resume(
    ids: IdsArgument,
    to: Annotated[str | None, typer.Option("--to", help="New URL for notifications.")] = None,
    recipient: Annotated[str | None, typer.Option(help="Recipient behind the new URL.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Resume paused subscriptions. Their buffered notifications are delivered first."""
    with connected(url) as client:
        for_each(ids, lambda id: show(json, client.resume(id, url=to, recipient=recipient), f"resumed {id}"))


def unsubscribe(ids: IdsArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """End subscriptions. Events accepted after this command returns are not delivered to them."""

    def end(client: Client, id: str) -> None:
        client.unsubscribe(id)
        show(json, {"unsubscribed": id}, f"unsubscribed {id}")

    with connected(url) as client:
        for_each(ids, lambda id: end(client, id))


def subscriptions(
    topic: Annotated[str | None, typer.Option(help="Only this topic or subtree.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only this owner.")] = None,
    dead: Annotated[
        bool, typer.Option("--dead", help="Only those that no advertisement of their topic can match.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonLinesOption = False,
) -> None:
    """List subscriptions."""
    with connected(url) as client:
        found = client.subscriptions(topic=topic, owner=owner, dead=dead)
        if json:
            for one in found:
                show_json(one)
            return
        rows = [
            (
                one.id,
                one.topic,
                condition_text(one),
                one.sink.url if one.sink else "(stream)",
                (one.sink.recipient if one.sink else None) or "",
                one.server or "",
                one.state or "",
                one.expires or "never",
            )
            for one in found
        ]
    headings = ("id", "topic", "filter", "to", "recipient", "server", "state", "expires")
    show_rows(headings, rows, none=f"there are no {'dead ' if dead else ''}subscriptions")


@app.command("show")
def show_subscription(id: IdArgument, url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show a subscription with its sink, its expiry and the state of its delivery."""
    with connected(url) as client:
        found = client.subscription(id)
    show(json, found, *_lines(found))


def _lines(found: Subscription) -> list[str]:
    sink = found.sink
    to = "(stream)" if sink is None else sink.url + (f" for {sink.recipient}" if sink.recipient else "")
    lines = [
        f"subscription {found.id}: {found.state}",
        f"  topic    {found.topic}",
        *_condition_lines(found),
        f"  to       {to}",
    ]
    if sink is not None and (sink.format or sink.consent):
        consent = ", asks for consent" if sink.consent else ""
        lines.append(f"  format   {sink.format or 'json'}{consent}")
    if sink is not None:
        lines += _settings_lines(sink)
    lines += [
        f"  owner    {found.owner}",
        f"  created  {found.created}",
        f"  expires  {found.expires or 'never'}",
    ]
    if found.topics is not None:
        lines.append(f"  covers   {counted(len(found.topics), 'topic')}")
        lines += [f"    {one.topic} on {one.server}" for one in found.topics]
        lines += [f"    not {one.topic}: {one.reason}" for one in found.left_out or []]
    else:
        lines.append(f"  server   {found.server}")
    if found.advertised is False:
        lines.append("  dead     no advertisement of the topic can match the filter")
    if found.delivery is not None:
        lines.append(f"  delivery {found.delivery.state}, see `edn delivery show {found.id}`")
    return lines


def _condition_lines(found: Subscription) -> list[str]:
    if found.sequence is None:
        return [f"  filter   {filter_text(found.filter)}"]
    lines = []
    for place, step in enumerate(found.sequence):
        times = f" {step.times} times" if step.times else ""
        lines.append(f"  {'then ' if place else 'first'}    {step.topic}: {filter_text(step.filter)}{times}")
        if step.unless is not None:
            lines.append(f"    unless {step.unless.topic}: {filter_text(step.unless.filter)}")
    if found.by:
        lines.append(f"  by       {', '.join(found.by)}")
    lines += [
        f"  {name:8} {value}" for name, value in (("within", found.within), ("settle", found.settle)) if value
    ]
    state = found.sequence_state
    if state is not None:
        since = f", since {state.since}" if state.since else ""
        lines.append(
            f"  monitor  waits for step {state.waiting_for}{since}; "
            f"{counted(state.half_matches, 'half match', 'half matches')}"
        )
    return lines


def _settings_lines(sink: Sink) -> list[str]:
    """Describes the settings of a sink, without the values of headers, which may be secret."""
    lines = []
    if sink.headers:
        lines.append(f"  headers  {', '.join(sorted(sink.headers))}")
    if sink.credentials is not None:
        lines.append(f"  sends    {sink.credentials.type} credentials")
    if sink.timeout is not None:
        lines.append(f"  timeout  {sink.timeout:g} s")
    if sink.retry is not None:
        retry, parts = sink.retry, []
        if retry.schedule is not None:
            parts.append("after " + ", ".join(f"{one:g}" for one in retry.schedule) + " s")
        if retry.exponential is not None:
            growth = retry.exponential
            parts.append(f"after {growth.first:g} s, times {growth.factor:g} up to {growth.longest:g} s")
        if retry.give_up is not None:
            parts.append(f"for {retry.give_up:g} s")
        if retry.permanent:
            parts.append("never after " + ", ".join(map(str, retry.permanent)))
        lines.append(f"  retries  {', '.join(parts)}")
    if sink.rate is not None:
        lines.append(f"  rate     {sink.rate:g} per second")
    if sink.ordered is False:
        lines.append("  order    none: each notification is retried alone")
    return lines


@app.command()
def change(
    id: IdArgument,
    filter: Annotated[str | None, typer.Option(help=FILTER_HELP)] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Remove the filter: match all events of the topic.")
    ] = False,
    to: Annotated[str | None, typer.Option("--to", help="New URL for notifications.")] = None,
    recipient: Annotated[str | None, typer.Option(help="New recipient behind the URL.")] = None,
    format: FormatOption = None,
    consent: ConsentOption = None,
    expires: Annotated[
        str | None, typer.Option(help="New expiry: a duration such as 1h, an RFC 3339 time, or never.")
    ] = None,
    header: HeaderOption = None,
    credentials_file: CredentialsOption = None,
    timeout: TimeoutOption = None,
    schedule: ScheduleOption = None,
    exponential: ExponentialOption = None,
    give_up: GiveUpOption = None,
    permanent: PermanentOption = None,
    rate: RateOption = None,
    ordered: OrderedOption = None,
    default_delivery: Annotated[
        bool,
        typer.Option("--default-delivery", help="Remove headers, credentials, retries, timeout and rate."),
    ] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Change parts of a subscription in place. No event is lost or delivered twice; other parts stay.

    Headers and retries are replaced as a whole. Another URL keeps no headers, credentials and other settings.
    """
    from edn.client import KEEP

    if filter is not None and everything:
        fail("give either --filter or --everything", USAGE)
    settings = read_settings(
        header=header,
        credentials_file=credentials_file,
        timeout=timeout,
        schedule=schedule,
        exponential=exponential,
        give_up=give_up,
        permanent=permanent,
        rate=rate,
        ordered=ordered,
    )
    if default_delivery:
        settings = {**dict.fromkeys(SETTINGS), **settings}
    given = (filter, to, recipient, format, consent, expires)
    if not everything and not settings and all(one is None for one in given):
        fail("give at least one part to change, such as --filter or --to", USAGE)
    with connected(url) as client:
        changed = client.change(
            id,
            filter=None if everything else KEEP if filter is None else read_filter(filter),
            url=KEEP if to is None else to,
            recipient=KEEP if recipient is None else recipient,
            format=KEEP if format is None else format,
            consent=KEEP if consent is None else consent,
            expires=KEEP if expires is None else None if expires == "never" else expires,
            **settings,
        )
    show(json, changed, *_lines(changed))
    warn(changed)
    if not json and changed.sink is not None and changed.sink.secret is not None:
        say(f"signing secret: {changed.sink.secret}\nCopy it now; it will not be shown again.")


@app.command()
def renew(
    id: IdArgument,
    expires: Annotated[
        str, typer.Argument(help="New expiry: a duration such as 1h or P30D, an RFC 3339 time, or never.")
    ],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Set a new expiry: edn subscription renew ID 1h"""
    with connected(url) as client:
        renewed = client.renew(id, None if expires == "never" else expires)
    show(json, renewed, f"{id} expires {renewed.expires or 'never'}")

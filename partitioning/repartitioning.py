"""The command `edn repartition`: exports, plans and applies in one step, or each step separately."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edn.cli.output import follow
from edn.client import moving
from edn.formats.counts import counted
from edn.tools.console import (
    DEFAULT_URL,
    REFUSED,
    USAGE,
    JsonOption,
    UrlOption,
    connected,
    fail,
    say,
    show_json,
    show_table,
)
from partitioning import command

if TYPE_CHECKING:
    from edn.client import Client
    from partitioning.report import Report

app = typer.Typer(
    name="repartition",
    help="Move subscriptions so that similar ones share a server, while events are published.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("plan")(command.plan)

#: improvement of the hit ratio below which moving is not worth it
LEAST_GAIN = 0.005
#: the same for the imbalance, the largest load as a multiple of the average
LEAST_BALANCE = 0.1

RateOption = Annotated[
    float | None, typer.Option("--rate", min=0.001, help="Subscriptions to move per second.")
]


@app.callback(invoke_without_command=True)
def repartition(
    context: typer.Context,
    topic: Annotated[str | None, typer.Option(help="Topic; required if there are several.")] = None,
    method: Annotated[str, typer.Option(help="Method; see `edn repartition plan --help`.")] = "rtree",
    rate: RateOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves without moving.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Move even if nothing improves.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before moving.")] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Export subscriptions, plan on Spark (needs Java 17), and apply the plan after confirmation.

    A plan that improves neither the hit ratio nor the balance of the servers is not applied.
    """
    if context.invoked_subcommand is not None:
        return
    from edn.cli.export import export

    with tempfile.TemporaryDirectory(prefix="edn-repartition-") as folder:
        snapshot, plan = Path(folder) / "subscriptions.parquet", Path(folder) / "plan"
        with connected(url) as client:
            hosts = [one.id for one in client.servers() if one.state == "ready" and one.leaving is None]
            hosts = _allowed(client, topic, hosts)
            misplaced = any(one.misplaced for one in client.routes(topic).bindings)
        if not hosts:
            fail("no server is ready to host subscriptions", REFUSED)
        export(str(snapshot), topic=topic, url=url)
        planned = command.make(str(snapshot), servers=hosts, plan=str(plan), method=method)
        if not json:
            command.show(planned)
        if not (dry_run or force or misplaced) and not is_gain(planned):
            assert planned.before is not None
            say(
                "neither the hit ratio nor the balance would improve (hit ratio "
                f"{planned.before.hit_ratio:.3f} now, {planned.after.hit_ratio:.3f} then): "
                "no subscription was moved. --force moves them anyway."
            )
            if json:
                show_json(planned)
            return
        apply(plan, rate=rate, dry_run=dry_run, yes=yes, url=url, json=json)


def is_gain(planned: Report) -> bool:
    """Return whether a plan improves the hit ratio or the balance by enough to be worth the moves."""
    before, after = planned.before, planned.after
    if before is None:
        return True
    fewer = before.hit_ratio - after.hit_ratio
    is_evener = before.imbalance - after.imbalance >= LEAST_BALANCE and fewer > -LEAST_GAIN
    return fewer >= LEAST_GAIN or is_evener


@app.command("apply")
def apply(
    plan: Annotated[Path, typer.Argument(help="Plan of `edn repartition plan`.")],
    rate: RateOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves without moving.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before moving.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait until all are moved.")] = False,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Move subscriptions according to a plan. Continues if this command or a process of the network exits."""
    expected = _expected(plan)
    with connected(url) as client:
        made = client.run(moving.open_repartition(rate=rate, expected_hit_ratio=expected))
        try:
            for chunk in _assignments(plan):
                client.run(moving.assign(made.id, chunk))
            seen = client.run(moving.preview_repartition(made.id))
            if not json:
                _show(seen)
            if dry_run or not (yes or seen.moves == 0 or _agreed(seen)):
                client.run(moving.cancel_repartition(made.id))
                if json:
                    show_json(seen)
                elif not dry_run:
                    say("no subscription was moved")
                return
        except BaseException:
            _cancel(client, made.id)
            raise
        started = client.run(moving.start_repartition(made.id))
        done = started if detach else follow(client, started)
    _report(done, json)


@app.command("status")
def status(url: UrlOption = DEFAULT_URL, json: JsonOption = False) -> None:
    """Show the last repartitions, the hit ratio, and whether a repartition is proposed."""
    with connected(url) as client:
        found = client.run(moving.repartitions())
    if json:
        show_json(found)
        return
    from rich.table import Table

    table = Table("id", "kind", "server", "state", box=None)
    for heading in ("moved", "skipped", "left", "waiting"):
        table.add_column(heading, justify="right")
    for one in found.repartitions:
        counts = (f"{number:,}" for number in (one.moved, one.skipped, one.left))
        table.add_row(str(one.id), one.kind, one.server or "", one.state, *counts, one.waiting or "")
    show_table(table)
    ratio = found.hit_ratio
    if ratio.now is not None:
        best = "" if ratio.best is None else f", best since the last repartition {ratio.best:.1%}"
        typer.echo(f"hit ratio {ratio.now:.1%}{best}")
    if found.unsettled:
        waiting = counted(found.unsettled, "subscription")
        typer.echo(f"{waiting}: the former server has not delivered its outbox yet")
    if found.proposal is not None:
        typer.echo(f"a repartition is proposed: the hit ratio was {found.proposal.best:.1%}")


@app.command("cancel")
def cancel(
    id: Annotated[int | None, typer.Argument(help="Repartition; the running one by default.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Stop moving subscriptions. Moved subscriptions stay on their new server."""
    with connected(url) as client:
        if id is None:
            running = [
                one.id for one in client.run(moving.repartitions()).repartitions if one.state == "running"
            ]
            if not running:
                fail("no repartition is running", REFUSED)
            id = running[0]
        done = client.run(moving.cancel_repartition(id))
    _report(done, json)


def _allowed(client: Client, topic: str | None, hosts: list[str]) -> list[str]:
    """Return the servers that may host subscriptions to a topic."""
    from edn.model.namespace import subtrees_of

    names = [one.name for one in client.topics()]
    path = topic if topic is not None else names[0] if len(names) == 1 else None
    bound = {one.name: one.servers for one in client.routes().bindings if one.servers is not None}
    for name in (path, *subtrees_of(path)) if path is not None else ():
        if name in bound:
            return [host for host in hosts if host in bound[name]]
    return hosts


def _assignments(plan: Path) -> Iterator[dict[str, str]]:
    """Yield the assignments of a plan, in pieces of one request."""
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ModuleNotFoundError as error:
        fail(f'{error.name} is not installed; run `pip install "edn[spark]"`', USAGE)
    if (plan / "_temporary").exists():
        fail(f"{plan} is incomplete: its job was interrupted; plan again with --overwrite", USAGE)
    try:
        found = ds.dataset(plan, format="parquet")
        for batch in found.to_batches(columns=["id", "server"], batch_size=moving.MAX_ASSIGNMENTS):
            if batch.num_rows:
                yield dict(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    except (OSError, pa.ArrowException) as error:
        fail(f"{plan} must be Parquet with the columns id and server: {str(error)[:200]}", USAGE)


def _expected(plan: Path) -> float | None:
    """Return the expected hit ratio from the report beside a plan, if it exists."""
    import msgspec

    report = plan.with_name(plan.name + command.REPORT)
    try:
        found: dict[str, Any] = msgspec.json.decode(report.read_bytes())
        return float(found["after"]["hit_ratio"])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return None


def _show(seen: moving.Preview) -> None:
    from rich.table import Table

    typer.echo(f"{counted(seen.moves, 'subscription')} would move, {seen.stay:,} stay")
    table = Table("server", box=None)
    table.add_column("now", justify="right")
    table.add_column("then", justify="right")
    for name, before in seen.before.items():
        table.add_row(name, f"{before:,}", f"{seen.after[name]:,}")
    show_table(table)
    if seen.unknown:
        typer.echo(f"no longer there: {counted(seen.unknown, 'subscription')} of the plan")
    if seen.unassigned:
        typer.echo(f"not in the plan, and not moved: {counted(seen.unassigned, 'subscription')}")
    if seen.expected_hit_ratio is not None:
        now = "" if seen.hit_ratio is None else f" (now {seen.hit_ratio:.1%})"
        typer.echo(f"expected hit ratio {seen.expected_hit_ratio:.1%}{now}")


def _agreed(seen: moving.Preview) -> bool:
    if not sys.stdin.isatty():
        fail("cannot ask for confirmation without a terminal; use --yes or --dry-run", USAGE)
    return typer.confirm(f"Move {counted(seen.moves, 'subscription')}?", err=True)


def _cancel(client: Client, id: int) -> None:
    from edn.client import ClientError

    try:
        client.run(moving.cancel_repartition(id))
    except ClientError:
        pass  # it expires


def _report(done: moving.Repartition, json: bool) -> None:
    if json:
        show_json(done)
        return
    after = f", {done.left:,} left" if done.left else ""
    typer.echo(
        f"repartition {done.id} is {done.state}: {done.moved:,} moved, {done.skipped:,} skipped{after}"
    )
    if done.unsettled:
        typer.echo(f"{done.unsettled:,} wait until their former server has delivered its outbox")

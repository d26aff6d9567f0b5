"""`edn key`: create, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, say, show_json, show_table

if TYPE_CHECKING:
    from edn.client import Key

app = typer.Typer(
    help="API keys: who may publish, subscribe, administer. The first one is made with the network's own "
    "secret: edn --key-file DATA/secret key create …",
    no_args_is_help=True,
)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is; the default owner of subscriptions.")],
    scope: Annotated[
        list[str], typer.Option("--scope", help="publish, subscribe, admin or metrics; again for each.")
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Whose topics it sees; default: that of the key that makes it.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: a duration such as P90D, or an instant (RFC 3339).")
    ] = None,
    requests_per_second: Annotated[float | None, typer.Option(help="Calls, on the average.")] = None,
    events_per_second: Annotated[float | None, typer.Option(help="Events, on the average.")] = None,
    subscriptions: Annotated[int | None, typer.Option(help="That its tenant may have.")] = None,
    predicates: Annotated[
        int | None, typer.Option(help="Comparisons that its tenant's filters may make, all together.")
    ] = None,
    topics: Annotated[int | None, typer.Option(help="That its tenant may have.")] = None,
    attributes: Annotated[int | None, typer.Option(help="Of its tenant's topics, all together.")] = None,
    members: Annotated[
        int | None, typer.Option(help="Topics that its tenant's subtrees may reach, all together.")
    ] = None,
    body: Annotated[int | None, typer.Option(help="Bytes of one body.")] = None,
    streams: Annotated[int | None, typer.Option(help="Streams read at the same time.")] = None,
    retained_bytes: Annotated[
        int | None, typer.Option(help="Bytes of its tenant's events that stay available.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Make a key and print it: this once, and never again. Its limits are those of the maker, or less."""
    quota: dict[str, float | None] = {
        "requests_per_second": requests_per_second,
        "events_per_second": events_per_second,
        "subscriptions": subscriptions,
        "predicates": predicates,
        "topics": topics,
        "attributes": attributes,
        "members": members,
        "body": body,
        "streams": streams,
        "retained_bytes": retained_bytes,
    }
    given = {limit: value for limit, value in quota.items() if value is not None}
    with connected(url) as client:
        made = client.create_key(name, scope, tenant=tenant, expires=expires, quota=given)
    if json:
        show_json(made)
    else:
        typer.echo(made.key)
        say(f"key {made.id} for {_who(made)}: keep it now, nothing shows it again")


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """List keys, without their secret parts."""
    with connected(url) as client:
        found = client.keys(tenant=tenant)
    if json:
        show_json(found)
        return
    from rich.table import Table

    table = Table("id", "name", "tenant", "scopes", "expires", "quota", box=None)
    for key in found:
        quota = " ".join(f"{limit}={value:g}" for limit, value in key.quota.items())
        table.add_row(key.id, key.name, key.tenant, " ".join(key.scopes), key.expires or "", quota)
    show_table(table)


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="Its id, as `edn key list` shows it.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Revoke a key: from now on it opens nothing."""
    with connected(url) as client:
        client.revoke_key(id)
    if json:
        show_json({"revoked": id})
    else:
        typer.echo(f"key {id} is revoked")


def _who(key: Key) -> str:
    return f"{key.name} of {key.tenant}" if key.tenant else key.name

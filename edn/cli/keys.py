"""`edn key`: create, list and revoke API keys."""

from __future__ import annotations

from typing import Annotated

import typer

from edn.cli.output import show, show_rows
from edn.tools.console import DEFAULT_URL, JsonOption, UrlOption, connected, say, show_json

app = typer.Typer(
    help="Manage API keys. Create the first one with the network secret: "
    "edn --key-file DATA/secret key create …",
    no_args_is_help=True,
)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key, and default owner of its subscriptions.")],
    scope: Annotated[
        list[str], typer.Option("--scope", help="publish, subscribe, admin or metrics. Repeatable.")
    ],
    tenant: Annotated[
        str | None, typer.Option(help="Tenant of the key. Default: the tenant of the key in use.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Expiry: a duration such as 90d, or an RFC 3339 time.")
    ] = None,
    requests_per_second: Annotated[float | None, typer.Option(help="Average rate of requests.")] = None,
    events_per_second: Annotated[float | None, typer.Option(help="Average rate of events.")] = None,
    subscriptions: Annotated[int | None, typer.Option(help="Subscriptions of the tenant.")] = None,
    predicates: Annotated[int | None, typer.Option(help="Comparisons in all filters of the tenant.")] = None,
    topics: Annotated[int | None, typer.Option(help="Topics of the tenant.")] = None,
    attributes: Annotated[int | None, typer.Option(help="Attributes in all topics of the tenant.")] = None,
    members: Annotated[
        int | None, typer.Option(help="Topics in all subtree subscriptions of the tenant.")
    ] = None,
    body: Annotated[int | None, typer.Option(help="Bytes per request body.")] = None,
    streams: Annotated[int | None, typer.Option(help="Concurrent streams.")] = None,
    retained_bytes: Annotated[
        int | None, typer.Option(help="Bytes of all retained events of the tenant.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Create a key and print it. It is not shown again. Its quotas cannot exceed those of the key in use."""
    from edn.client.encoding import drop_none

    quota = drop_none(
        requests_per_second=requests_per_second,
        events_per_second=events_per_second,
        subscriptions=subscriptions,
        predicates=predicates,
        topics=topics,
        attributes=attributes,
        members=members,
        body=body,
        streams=streams,
        retained_bytes=retained_bytes,
    )
    with connected(url) as client:
        made = client.create_key(name, scope, tenant=tenant, expires=expires, quota=quota)
    if json:
        show_json(made)
        return
    typer.echo(made.key)
    owner = f"{made.name} of {made.tenant}" if made.tenant else made.name
    say(f"created key {made.id} for {owner}; copy it now, it will not be shown again")


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only keys of this tenant.")] = None,
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """List keys without their secrets."""
    with connected(url) as client:
        found = client.keys(tenant=tenant)
    if json:
        show_json(found)
        return
    show_rows(
        ("id", "name", "tenant", "scopes", "expires", "quota"),
        (
            (
                key.id,
                key.name,
                key.tenant,
                " ".join(key.scopes),
                key.expires or "",
                " ".join(f"{limit}={value:g}" for limit, value in key.quota.items()),
            )
            for key in found
        ),
        none="there are no keys; create one with `edn key create`",
    )


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="Id of the key, as shown by `edn key list`.")],
    url: UrlOption = DEFAULT_URL,
    json: JsonOption = False,
) -> None:
    """Revoke a key. Requests with it are refused at once."""
    with connected(url) as client:
        client.revoke_key(id)
    show(json, {"revoked": id}, f"revoked key {id}")

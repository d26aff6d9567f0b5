"""The front door and router: takes events and subscriptions, keeps the log, forwards to servers.

May import `edn`, `selftune` and the online half of `partitioning`. What never comes in: `edn_server`, Spark,
matching of single subscriptions.

An event's way, forward through the modules:

    publishing             decode and validate: plain ASGI
    store/                 append, commit; nothing leaves before this. All SQL stands there, and only there:
                           the log, and every table that changes together with it
    network                all of the running network together; what is committed is routed here
    routing                which servers need it (`routing_holding`: what the table holds of one)
    forwarding             one ordered stream per server: `framing` its frames, `link` how much may leave,
                           `metering` what is counted on the way, `recent` the youngest events
    replaying              the past of new subscriptions; `streaming`, `following`: what became of events

A subscription's:

    app, door              the application with all of its routes, and all that is behind them; `bodies`,
                           `openapi`; `topics_door`, `subscriptions_door`, `operations_door`;
                           `cloudevents_door`, `soap/`: the same in other words; `consent_door`
    subscribing            what callers ask is checked here, and carried out; what they are shown
    topics, subscriptions  decide what becomes of them (`exclusion`, `expiry`, `sinks`)
    subtrees, joining      one to a subtree, and the topics that it has; `gathering`, `stream_merging`: what
                           several servers say of it
    activating, covering   how subscriptions begin and end in the log; those that a filter covers
    storing, placing       what a server must have stored first, and which server that is (`bindings`,
                           `routes_door`, `routing_entries`: by name)
    keyrings               whose secret signs
    members, calling       the servers, and what they are asked; `restoring`: what one that returns lacks
    evidence               what is asked of the host about delivery

Who may: `access`, `keys`, `keys_door`, `quotas`, `audit`; `internal` is for the network's own processes.

What moves: `repartitioning`, `sharing`, `moving`, `settling`, `proposing`, `moving_door`; a
copy of everything: `backing`, `backup_door`. What tunes: `tuning_loop`, `surveying`, `recutting`,
`tuning_door`. What shows: `dashboard/`, `explaining`, `explaining_door`, `metrics`.

Where there are several dispatchers: `merging` (what they have changed), `peers` (who is there, who may take
events, who leads), `leading` (calls go to the leader).

`python -m dispatcher` begins with `config`.
"""

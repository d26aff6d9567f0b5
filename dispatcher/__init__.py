"""The dispatcher: the front door of the network, its durable log and its router.

    config         settings
    services       wires all parts together; `app` is the HTTP app, `python -m dispatcher` runs it
    store          the log, the directory and everything that is SQL
    auth           callers, rights, quotas, audit
    routing        which servers an event goes to
    servers        registration, placement, the stream of log records to each server
    subscriptions  topics and subscriptions, from the request to the log record
    rebalance      subscriptions that move between servers
    replication    several dispatchers
    tuning         the precision of the summaries
    observe        explanations, event traces, figures for dashboard and metrics
    api            the routes: REST, SOAP, CloudEvents, dashboard

Packages import only what is below them; `tests/test_architecture.py` checks this. `docs/internals.md` is the
map.
"""

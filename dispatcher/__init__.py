"""The dispatcher: accepts events, appends them to its log and routes them to servers.

    config         settings
    services       wires all parts; `app` is the HTTP app, `python -m dispatcher` runs it
    store          the log, the directory and all SQL
    auth           callers, rights, quotas, audit
    routing        the routing table: servers per event
    servers        registration, placement, forwarding of log records to servers
    subscriptions  topics and subscriptions, from the request to the log record
    rebalance      migrations of subscriptions between servers
    network        several dispatchers on one directory
    tuning         precision of the summaries
    observe        explanations, event traces, figures for dashboard and metrics
    api            routes: REST, SOAP, CloudEvents, dashboard

`tests/test_architecture.py` checks which package may import which. `docs/internals.md` is the map.
"""

"""The server process: it hosts subscriptions, matches the dispatcher's stream exactly and notifies.

    config         settings; `policies`: the parts of it that delivery acts on
    services       wires all parts together; `app` is the HTTP app, `python -m edn_server` runs it;
                   `housekeeping` deletes what nothing needs
    storage        the data folder and everything that is SQL; the thread that writes
    subscriptions  stored subscriptions, indexed by topic in memory, counted
    outbox         rows of matches, buffered rows, batches for one POST, bodies
    ingest         frames, control records and replays become notifications, in one transaction each
    handover       subscriptions that move between servers
    sinks          what can be notified, by scheme; streams
    delivery       one worker per address, retries, circuit breaker, dead letters
    dispatchers    registration, requests to dispatchers, placement hints
    observe        delivery status, explanations, event traces, metrics
    api            the HTTP routes

A package imports only packages below it:

    api → observe → delivery → sinks → outbox → subscriptions → storage
          handover → ingest → outbox
    api → dispatchers → subscriptions

`tests/test_architecture.py` checks this. Only `storage` contains SQL. It imports `edn` and
`partitioning.online`, and nothing of the other services.
"""

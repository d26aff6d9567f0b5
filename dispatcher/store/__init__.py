"""The dispatcher's storage: the event log, and the tables that change in the same transaction.

Only modules of this package contain SQL. They are named query functions whose first parameter is the
connection or the transaction. Callers pass them to `log.submit(...)` and `await log.reading(...)`. The
package imports nothing else of the dispatcher.

    interface      transactions, errors, helpers for queries
    event_log      the log, as the rest of the dispatcher sees it
    sqlite         the log in SQLite, and its tables
    records        records of the log, and their format on disk
    directory      subscriptions
    topic_rows     topics, and bindings of names
    advertisement_rows   what publishers will send
    signing_keys   key rings that sign notifications
    api_keys       API keys, by digest
    sources        sources of events at brokers, and their dead letters
    servers        servers, their cursors, drained and lost servers
    replays        unfinished replays
    repartitions   repartitions with their assignments, and unfinished migrations
    retention      truncation, bytes of retained events per tenant, event ids of publishers
    changes        changes of other dispatchers, as this one reads them
    postgres       the log and the directory in PostgreSQL
    meta           single values
"""

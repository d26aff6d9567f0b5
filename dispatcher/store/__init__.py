"""The dispatcher's storage: the event log, and the tables that change in the same transaction.

Only modules of this package contain SQL. They hold named query functions that take the connection, or the
transaction, first. The domain calls them inside `log.submit(...)` and `await log.reading(...)`, and knows
nothing of tables. The package imports nothing of the dispatcher outside itself.

    interface      the store as its callers see it, and its errors
    schema         tables, indexes, triggers, and the format number of a data folder
    event_log      one durable order of events and changes, in SQLite; `log_tail`: its newest part in memory
    records        the records of the log, and their form on disk
    directory      subscriptions
    topic_rows     topics, and bindings of names
    signing_keys   key rings that sign notifications
    api_keys       API keys, by digest
    servers        servers, their cursors, and servers that leave
    replays        replays of retained events that are not finished
    repartitions   repartitions with their assignments, and moves that are not settled
    retention      bytes of retained events per tenant, and event ids of publishers
    change_feed    changes that other dispatchers must learn of
    meta           single values
"""

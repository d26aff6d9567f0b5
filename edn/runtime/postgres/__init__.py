"""PostgreSQL as the engine of a network: sessions, leases, transactions, schema.

    database     where the database is, connecting with deadlines, what is refused at the start
    connection   the connection that queries see (`edn.runtime.sql`), for writing and for reading
    lease        who owns a log or a shard: a lease on the database's clock, and a fencing token
    takeover     finds leases whose owner is dead
    schema       migrations, and the views that limit queries to one log or shard
    writer       the thread that commits, and resolves a commit in doubt

May import `edn.runtime` and `edn.errors`. The tables of a service are in its store.
"""

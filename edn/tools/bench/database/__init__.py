"""`edn bench database`: a network on PostgreSQL with a synchronous standby, relative to SQLite.

benchmark     runs the parts
replicated    starts a primary and its standby; measures the round trip between them
engines       starts the same network on either engine
append        the dispatcher's log alone
apply         one server alone
publishing    publish to committed outboxes, and the latency of single events
several       one, two and four dispatchers: CPU per event of each process
outcome       results and bounds
report        tables
bloat         `edn bench bloat`: sizes and dead rows of the tables under load
"""

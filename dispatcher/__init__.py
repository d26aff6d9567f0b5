"""The front door and router: takes events and subscriptions, keeps the log, forwards to servers.

What lives here: the REST interface, the log and the directory (one SQLite file), the routing table, one
forwarder a server, the membership of servers. May import `edn`, `selftune` and the online half of
`partitioning`. What never comes in: `edn_server`, Spark, matching of single subscriptions.

Data flows forward through the modules:

    api, publishing        decode and validate
    topics, subscriptions  decide, and call a server where one must store first
    placing                which server that is
    log                    append, commit; nothing leaves before this
    routing                which servers need which committed events
    forwarding             one ordered stream a server

Beside it, where there are several dispatchers: `changes` (what others must learn of), `merging` (what they
have changed), `peers` (who is there, who may take events, who leads), `leading` (calls go to the leader).
"""

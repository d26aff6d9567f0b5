"""The front door and router: takes events and subscriptions, keeps the log, forwards to servers.

May import `edn`, `selftune` and the online half of `partitioning`; never `edn_server` or Spark. The docstring
of each package lists what it may import.

The way of an event:

    api/publish            decodes and validates: plain ASGI
    servers/admission      decides whether events are accepted now
    store/event_log        appends and commits; nothing leaves before this
    servers/pipeline       routes each commit, and wakes the forwarders
    routing/table          finds the servers that an event goes to
    servers/forwarder      sends one ordered stream per server

The way of a subscription:

    api/subscriptions      the REST route; `api/cloudevents` and `api/soap/` are others
    subscriptions/requests checks the request, and shows the result
    subscriptions/service  creates, changes, ends
    servers/placement      chooses a server
    subscriptions/installer has the server store it; `servers/summaries` widens the routing table
    subscriptions/lifecycle records it in the log and the directory

`services` makes all parts and starts them, `app` the routes; `python -m dispatcher` begins with `config`.
"""

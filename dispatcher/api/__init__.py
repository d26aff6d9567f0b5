"""The routes of the dispatcher: REST, CloudEvents, server-sent events, calls of the network's own processes.

`soap/` and `dashboard/` are the other doors, `admin/` the routes of operators. May import every other package
of the dispatcher; only `app` and `services` import it.
"""

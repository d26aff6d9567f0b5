"""The dispatcher's routes: REST, CloudEvents, streams, calls between the network's processes.

`soap/` and `dashboard/` are further interfaces, `admin/` has the routes of operators. May import every other
package of the dispatcher; only `app` imports it.
"""

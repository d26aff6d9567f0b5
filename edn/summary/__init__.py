"""What a server's subscriptions can match, in as many or as few rectangles as routing can afford.

`Maximal` keeps the rectangles that matter under inserts and deletes (on a server), `Summary` packs them
into a hierarchy that can be cut to any size (made on a server, cut on a dispatcher), and a router from
`new_router` answers which events lie in a cut. Only these names are for other packages. No network, no
disk, no clock comes in.
"""

from __future__ import annotations

from edn.summary.cover import Bundle, Cover, Router, new_router
from edn.summary.hierarchy import Summary
from edn.summary.maximal import Maximal

__all__ = ["Bundle", "Cover", "Maximal", "Router", "Summary", "new_router"]

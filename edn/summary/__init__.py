"""Summaries of a server's subscriptions, in as many or as few rectangles as routing can afford.

`Maximal` keeps the rectangles that matter under inserts and deletes (on a server), `Summary` packs them
into a hierarchy that can be cut to any size (made on a server, cut on a dispatcher), and a router from
`new_router` answers which events lie in a cut. Only these names are for other packages. No network, no
disk, no clock comes in.
"""

from __future__ import annotations

import numpy as np

from edn.summary.cover import Bundle, Cover, Router, new_router
from edn.summary.hierarchy import Summary
from edn.summary.maximal import Maximal

__all__ = ["Bundle", "Cover", "Maximal", "Router", "Summary", "compile_kernels", "new_router"]


def compile_kernels() -> None:
    """Compiles all loops, or load them from their cache: seconds that a service spends before it is ready."""
    rng = np.random.default_rng(0)
    one, other = rng.random((20, 2)), rng.random((20, 2))
    maximal = Maximal(2)
    maximal.insert(range(20), np.minimum(one, other), np.maximum(one, other))
    maximal.delete([0])
    summary = Summary.from_bytes(Summary.build(*maximal.rects()).to_bytes())
    summary.cut(2, by="level")
    summary.cut(2, weights=one)
    router = new_router("bitmap")
    router.bundle([(0, router.cover(one, one))]).mark(other, np.zeros((20, 1), dtype=np.bool_))

"""Summaries of a server's subscriptions, with any number of rectangles.

`Maximal` maintains the maximal rectangles under inserts and deletes (on a server). `Summary` packs them into
a hierarchy that can be cut to any size (built on a server, cut on a dispatcher). A router from `new_router`
finds the points in cuts. `overlap` compares advertisements with
filters. Other packages import only these names, and `overlap`. No network, disk or clock.
"""

from __future__ import annotations

import numpy as np

from edn.summary.cover import Bundle, Cover, Router, new_router
from edn.summary.hierarchy import Summary
from edn.summary.maximal import Maximal

__all__ = ["Bundle", "Cover", "Maximal", "Router", "Summary", "compile_kernels", "new_router"]


def compile_kernels() -> None:
    """Compiles all kernels or loads them from the cache; a service does it before it is ready."""
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

"""Filters: what subscribers write, read from JSON or text, matched exactly, turned into rectangles, compared.

    ast         the tree that both forms are read into          jsonform, textform   the two forms
    binding     the tree under a schema; the exact predicate    intervals, cells     sets of values
    boxes       the tree as a union of boxes                    rectangles           boxes for an index
    dialects    filters of the CloudEvents Subscriptions API, there and back

Import `Filter` and `BoundFilter` from here, and `dialects`; the other modules are this package's own. Nothing
here knows subscriptions, network or disk. The semantics are in docs/model.md.
"""

from __future__ import annotations

from edn.model.filter.filter import BoundFilter, Filter

__all__ = ["BoundFilter", "Filter"]

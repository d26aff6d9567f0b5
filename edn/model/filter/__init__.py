"""Filters: parsed from JSON or text, matched exactly, converted into rectangles, compared.

    ast         the tree of a filter                            jsonform, textform   its two forms
    binding     the tree bound to a schema; the predicate       intervals, cells     sets of values
    boxes       the tree as a union of boxes                    rectangles           boxes for an index
    cost        estimated time of the predicate                 reasons              why it matches or not
    dialects    filters of the CloudEvents Subscriptions API
    advertisement   the events that a publisher will send

Import `Filter` and `BoundFilter` from here, and `advertisement`, `dialects` and `reasons`; the others are
private. The semantics are in docs/model.md.
"""

from __future__ import annotations

from edn.model.filter.filter import BoundFilter, Filter, boxes_of

__all__ = ["BoundFilter", "Filter", "boxes_of"]

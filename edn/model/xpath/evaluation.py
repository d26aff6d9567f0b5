"""Evaluates XPaths on events with libxml2.

Consecutive expressions on one event share its XML form. It is built from the values that predicates compare:
numbers with the fewest distinguishing digits, times as in responses. It has the declared attributes that are
not arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from lxml import etree

from edn.errors import InvalidFilter
from edn.formats import event_xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.xml import Element
from edn.model.coordinates import rfc3339
from edn.model.xpath.expression import Expression, write

_NAMESPACES = {"e": NAMESPACE}


class _Latest(threading.local):
    """The event that a thread evaluated last."""

    values: Mapping[str, Any] | None = None
    element: Element | None = None


_latest = _Latest()


class Evaluation:
    """A predicate on the values of an event (`Schema.values`)."""

    def __init__(self, expression: Expression, types: Mapping[str, str]) -> None:
        """Raises `InvalidFilter` if libxml2 rejects the expression."""
        self._types = types
        try:
            self._holds = etree.XPath(f"boolean({write(expression)})", namespaces=_NAMESPACES, regexp=False)
        except (etree.XPathError, ValueError) as error:
            raise InvalidFilter(f"the expression is not XPath 1.0: {error}") from None

    def __call__(self, values: Mapping[str, Any]) -> bool:
        if _latest.values is not values or _latest.element is None:
            _latest.element = event_xml.build(_texts(values, self._types))
            _latest.values = values
        return bool(self._holds(_latest.element))


def _texts(values: Mapping[str, Any], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, tuple):
            continue  # an array
        yield name, rfc3339(value) if types.get(name) == "time" else event_xml.format_value(value)

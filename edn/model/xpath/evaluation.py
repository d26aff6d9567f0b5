"""The verdict of an XPath on an event, by libxml2.

The event's XML form is built once for all expressions that are asked about it one after the other, from the
values that predicates compare: numbers in as few digits as tell them apart, times as answers have them.
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
from edn.model.xpath.expression import Expression
from edn.model.xpath.writing import write

_NAMESPACES = {"e": NAMESPACE}


class _Latest(threading.local):
    """The event that was asked about last, in each thread."""

    values: Mapping[str, Any] | None = None
    element: Element | None = None


_latest = _Latest()


class Verdict:
    """Whether an expression holds of an event with these values (`Schema.values`)."""

    def __init__(self, expression: Expression, types: Mapping[str, str]) -> None:
        """`types` are those of the attributes; raises `InvalidFilter` for what libxml2 does not take."""
        self._types = types
        try:
            self._holds = etree.XPath(f"boolean({write(expression)})", namespaces=_NAMESPACES, regexp=False)
        except (etree.XPathError, ValueError) as error:
            raise InvalidFilter(f"no XPath 1.0: {error}") from None

    def __call__(self, values: Mapping[str, Any]) -> bool:
        if _latest.values is not values or _latest.element is None:
            _latest.element = event_xml.build(_texts(values, self._types))
            _latest.values = values
        return bool(self._holds(_latest.element))


def _texts(values: Mapping[str, Any], types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        yield name, rfc3339(value) if types.get(name) == "time" else event_xml.format_value(value)

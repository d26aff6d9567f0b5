"""Finds matchers by their names: ours, and those of other packages."""

from __future__ import annotations

from importlib.metadata import entry_points

from edn.errors import InvalidInput
from edn.index.matcher import Matcher

#: a matcher may be named by its URI, too: this and its name
URI_PREFIX = "urn:edn:matcher:"
#: other packages add matchers in this group: a callable that takes the number of dimensions
ENTRY_POINT_GROUP = "edn.matchers"
BUILT_IN = ("bitmap", "rtree", "scan", "xpath")
#: the URI that XPath 1.0 has of its own
XPATH_URI = "http://www.w3.org/TR/1999/REC-xpath-19991116"


def known_engines() -> tuple[str, ...]:
    """The names that `new_matcher` takes, ours and installed ones."""
    others = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return BUILT_IN + tuple(sorted(others.difference(BUILT_IN)))


def engine_name(engine: str) -> str:
    """The name of an engine that is given by its name or its URI; `InvalidInput` if there is none such."""
    name = "xpath" if engine == XPATH_URI else engine.removeprefix(URI_PREFIX)
    if name in BUILT_IN:
        return name  # looking for installed ones reads the metadata of every package
    known = known_engines()
    if name not in known:
        raise InvalidInput(
            f"unknown engine {engine[:80]!r}; known are {', '.join(known)}, or the same after {URI_PREFIX}",
            pointer="/engine",
        )
    return name


def new_matcher(engine: str, dimensions: int) -> Matcher:
    """An empty matcher by its name or URI: `bitmap`, `urn:edn:matcher:rtree`, …"""
    if dimensions < 0:
        raise InvalidInput(f"a matcher cannot have {dimensions} dimensions")
    name = engine_name(engine)
    # imported here, because each brings a large library and few processes need more than one
    if name in ("bitmap", "xpath"):
        # Filters in XPath have rectangles, too: covers, after which the filter's own predicate decides.
        from edn.index.bitmap import BitmapMatcher

        return BitmapMatcher(dimensions)
    if name == "rtree":
        from edn.index.spatial import RtreeMatcher

        return RtreeMatcher(dimensions)
    if name == "scan":
        from edn.index.scan import ScanMatcher

        return ScanMatcher(dimensions)
    (entry,) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    matcher: Matcher = entry.load()(dimensions)
    return matcher

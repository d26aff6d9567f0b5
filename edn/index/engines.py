"""Creates matchers by name, including those of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from edn.errors import InvalidInput
from edn.index.matcher import Matcher

#: prefix of a matcher's URI, before its name
URI_PREFIX = "urn:edn:matcher:"
#: entry points of other packages: callables with the number of dimensions as argument
ENTRY_POINT_GROUP = "edn.matchers"
#: name → class, loaded on demand because each needs a large library
_BUILT_IN = {
    "bitmap": "edn.index.bitmap:BitmapMatcher",
    "rtree": "edn.index.spatial:RtreeMatcher",
    "scan": "edn.index.scan:ScanMatcher",
    # XPath filters have rectangles, too: covers, inside which the predicate decides.
    "xpath": "edn.index.bitmap:BitmapMatcher",
}
#: the standard URI of XPath 1.0
XPATH_URI = "http://www.w3.org/TR/1999/REC-xpath-19991116"


def known_engines() -> tuple[str, ...]:
    """Lists the names for `new_matcher`, built-in and installed ones."""
    others = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return (*_BUILT_IN, *sorted(others.difference(_BUILT_IN)))


def engine_name(engine: str) -> str:
    """Returns the name of an engine given by name or URI; raises `InvalidInput` if it does not exist."""
    name = "xpath" if engine == XPATH_URI else engine.removeprefix(URI_PREFIX)
    if name in _BUILT_IN:
        return name  # finding installed ones reads the metadata of every package
    known = known_engines()
    if name not in known:
        raise InvalidInput(
            f"the engine must be one of {', '.join(known)}, or one of these after {URI_PREFIX}, "
            f"got {engine[:80]!r}",
            pointer="/engine",
        )
    return name


def new_matcher(engine: str, dimensions: int) -> Matcher:
    """Creates an empty matcher by its name or URI: `bitmap`, `urn:edn:matcher:rtree`, …"""
    if dimensions < 0:
        raise InvalidInput(f"the dimensions of a matcher must be 0 or more, got {dimensions}")
    name = engine_name(engine)
    if name in _BUILT_IN:
        entry = EntryPoint(name, _BUILT_IN[name], ENTRY_POINT_GROUP)
    else:
        (entry,) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    matcher: Matcher = entry.load()(dimensions)
    return matcher

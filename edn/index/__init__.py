"""Matchers: which of many rectangles contain a point.

`new_matcher(engine, dimensions)` gives one that keeps the promises of `Matcher`:

    bitmap   coded blocks, bitmaps over them, compiled kernels: the default (`bitmap.py`, `docs/matching.md`)
    rtree    libspatialindex, as a second opinion and an example of an engine that is not ours (`spatial.py`)
    scan     numpy, the yardstick of the others (`scan.py`)
    xpath    bitmap for the rectangles of XPath filters (`edn.model.xpath`), which other engines refuse

Other packages add theirs in the entry-point group `edn.matchers`. `patterns.py` finds many substrings in one
pass over a text, for the exact predicates that rectangles leave open. `kernels.py` holds what the kernels
share. Nothing here knows of subscriptions, topics, networks or disks; of `edn`, only `arrays` and `errors`
are imported.
"""

from edn.index.engines import engine_name, known_engines, new_matcher
from edn.index.matcher import Matcher

__all__ = ["Matcher", "engine_name", "known_engines", "new_matcher", "warm"]


def warm() -> None:
    """Loads the kernels of the default engine, compiling them if this machine never did (some 20 seconds)."""
    import edn.index.bitmap
    import edn.index.patterns  # noqa: F401 - the import is what compiles

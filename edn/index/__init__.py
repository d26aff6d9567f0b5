"""Matchers: find the rectangles that contain a point.

`new_matcher(engine, dimensions)` creates a `Matcher`:

    bitmap   coded blocks, bitmaps over them, compiled kernels: the default (`bitmap.py`, `docs/matching.md`)
    rtree    libspatialindex, as an example of a third-party engine (`spatial.py`)
    scan     numpy, the reference of the others (`scan.py`)
    xpath    bitmap for the rectangles of XPath filters (`edn.model.xpath`), which other engines refuse

Other packages add matchers in the entry-point group `edn.matchers`. `patterns.py` searches many substrings in
one pass over a text, for exact predicates. `kernels.py` has the shared kernels. The package knows nothing of
subscriptions, topics, networks or disks, and imports only `edn.arrays` and `edn.errors`.
"""

from edn.index.engines import engine_name, known_engines, new_matcher
from edn.index.matcher import Matcher

__all__ = ["Matcher", "engine_name", "known_engines", "new_matcher", "warm"]


def warm() -> None:
    """Loads the kernels of the default engine; compiles them if they are not cached (some 20 seconds)."""
    import edn.index.bitmap
    import edn.index.patterns  # noqa: F401 - the import compiles

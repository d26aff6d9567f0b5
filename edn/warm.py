"""`python -m edn.warm`: compiles all kernels into the cache, so that services start quickly.

`make setup` runs it. Otherwise the first process that needs a kernel compiles it, once per machine.
"""

from __future__ import annotations

from importlib import import_module


def warm() -> None:
    """Compiles the kernels of dispatcher and server, or loads them from the cache."""
    from edn import index, summary

    index.warm()
    summary.compile_kernels()
    # These compile when they are imported.
    import_module("edn.protocol.gather")
    import_module("edn.protocol.documents")
    import_module("edn.protocol.flat_events")
    import_module("edn.summary.overlap")


if __name__ == "__main__":
    warm()

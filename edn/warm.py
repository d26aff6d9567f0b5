"""`python -m edn.warm`: compile every kernel into its cache, so that the first start of a service is quick.

`make setup` runs it. Without it the first process that needs a kernel compiles it, once a machine.
"""

from __future__ import annotations

from importlib import import_module


def warm() -> None:
    """Compile, or load from the cache, what a dispatcher and a server need."""
    from edn import index, summary

    index.warm()
    summary.compile_kernels()
    import_module("edn.protocol.gather")  # compiles as it is loaded


if __name__ == "__main__":
    warm()

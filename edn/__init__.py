"""The language that all parts of the network speak, and the client and command line at its rim.

Here live the model (schema, event, filter, rectangle, index, summary), the wire formats and the errors; none
of them touches network or disk. `client`, `receiver`, `cli` and `demo` do, and the model imports none
of them. No service is ever imported from here.

`from edn import Client` loads the client only, not the model with its numerical libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edn.client import (
        AsyncClient,
        Client,
        ClientError,
        NewSubscription,
        ProblemError,
        Retries,
        UnexpectedAnswerError,
        UnreachableError,
    )

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "NewSubscription",
    "ProblemError",
    "Retries",
    "UnexpectedAnswerError",
    "UnreachableError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("edn.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

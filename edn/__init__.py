"""The language that all parts of the network speak, and the client and command line at its rim.

    model, index, summary   events, filters, matching, summaries: no network, no disk
    formats, protocol, api  outside formats, messages between processes, models of the REST interface
    http, runtime           what both services run on
    client, receiver        the library for programs: `edn.Client`, `edn.AsyncClient`, `edn.receiver.Receiver`
    cli, tools              the command `edn`; benchmarks, the checker, the demo

No service is ever imported from here. `from edn import Client` loads the client only, not the model with its
numerical libraries. `docs/internals.md` is the map.
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

"""The shared code of the network, its client library and its command line.

    model, index, summary   events, filters, matching, summaries; without I/O
    formats, protocol, api  external formats, messages between processes, models of the REST interface
    http, runtime           the base of both services
    client                  `edn.Client`, `edn.AsyncClient`, `edn.client.receiver.Receiver`
    cli, tools              the command `edn`; benchmarks, the checker, the demo

This package imports no service. `from edn import Client` imports the client only, without numerical
libraries. `docs/internals.md` is the map of the code.
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

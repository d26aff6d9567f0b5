"""The language that all parts of the network speak, and the client and command line at its rim.

The model touches neither network nor disk:

    namespace                      names of topics, and subtrees of them
    schema, coordinates, rect      the space of a topic; `legend`: back to what people read
    event, eventcheck, lines       events from the bytes of a request; other forms: `eventxml`, `cloudevents`
    filter/, xpath/                what subscribers want
    index/, summary/, picking      kernels: matching, routing, gathering (`compiling`, `warm`)
    wire, errors                   messages between the services, and errors (`wording`)
    api/                           answers of the REST interface, for services and client
    strictjson, xml, soap/         outside bytes, read carefully
    webhooks, sinkpolicy, tracing  how, where and with what context a sink is notified

What both services share at run time: `asgi`, `deadlines`, `process`, `metrics`, `clock`, `runtime/` (their
settings).

At the rim, which the model never imports: `client/`, `receiver`, `cli/`, `demo`, `checker/`, `bench/`. No
service is ever imported from here.

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

"""The metrics route for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from edn.errors import Unauthorized
from edn.http.asgi import check_bearer
from edn.runtime import metrics
from edn.runtime.metrics import Values
from edn_server.api.messages import PROBLEM_BODY, UNAUTHORIZED
from edn_server.api.proxy import DispatcherProxy, client_of
from edn_server.delivery.sender import Timings
from edn_server.observe.metrics import METRICS

_REFUSED: dict[int | str, dict[str, Any]] = {
    403: {"description": "the key lacks the scope metrics", **PROBLEM_BODY},
    429: {"description": "too many calls", **PROBLEM_BODY},
    503: {"description": "not started yet, or the dispatcher cannot be reached", **PROBLEM_BODY},
}


def routes(
    read: Callable[[], dict[str, Values]], timings: Timings, proxy: DispatcherProxy, secret: str
) -> APIRouter:
    """Returns the route; `proxy` asks the dispatcher whether a client may read metrics."""
    router = APIRouter(tags=["health"])
    registry = metrics.registry(metrics.Table(METRICS, read), timings.posts, timings.deliveries)

    @router.get(
        "/metrics", response_class=Response, responses={**metrics.CONTENT, **UNAUTHORIZED, **_REFUSED}
    )
    async def scrape(request: Request) -> Response:
        """Needs an API key with the scope `metrics`, an operator's key, or the network secret."""
        client = client_of(request)
        try:
            check_bearer(client.authorization, secret)
        except Unauthorized:
            await proxy.check_metrics(client)
        return metrics.answer(registry, request.headers.get("accept", ""))

    return router

"""Returns the answer of another process to a forwarded call."""

from __future__ import annotations

from collections.abc import Awaitable

import structlog
from starlette.responses import Response

from edn.errors import Unavailable
from edn.http.control_client import NOT_REACHED, ControlAnswer

logger = structlog.get_logger()

#: headers that are returned to the caller
_PASSED_BACK = ("content-type", "location", "retry-after", "allow", "www-authenticate")
#: timeout in seconds: longer than the other process waits for a server
TIMEOUT = 30.0


class NotReached(Unavailable):
    """The connection to the other process failed, so the call was not sent."""


async def pass_back(call: Awaitable[ControlAnswer], process: str, *, retry_after: int) -> Response:
    """Awaits the answer of another process and converts it to a response.

    `process` names it in errors. Raises `NotReached` if the call was not sent, and `Unavailable` if it was
    sent but not answered.
    """
    try:
        answer = await call
    except NOT_REACHED as error:
        raise NotReached(
            f"{process} cannot be reached; nothing was stored, try again", retry_after=retry_after
        ) from error
    except Exception as error:
        # Not only the client's own errors: anyio raises others if a connection is reset early.
        logger.warning("proxied_call_failed", process=process, error=str(error) or type(error).__name__)
        raise Unavailable(
            f"{process} did not answer and may or may not have executed the call; repeating it is safe if "
            "you chose the ids yourself",
            retry_after=retry_after,
        ) from error
    headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
    return Response(answer.content, status_code=answer.status_code, headers=headers)

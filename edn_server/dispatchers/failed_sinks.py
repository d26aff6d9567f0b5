"""Asks the dispatcher to end subscriptions whose endpoint was disabled, where their protocol says so.

WS-Eventing ends a subscription when its endpoint fails for too long. The request is repeated until the log
ends the subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import structlog

from edn.http.control_client import CallFailed
from edn_server.dispatchers.client import Dispatchers
from edn_server.storage import addresses
from edn_server.subscriptions.view import RegistryView

logger = structlog.get_logger()


async def end_failed(view: RegistryView, disabled: Sequence[str], dispatchers: Dispatchers) -> None:
    """Request the end of living subscriptions at disabled addresses whose protocol ends them."""
    for address in disabled:
        if not addresses.url_of(address).startswith("soap:"):
            continue
        for subscription in view.subscriptions_at(address):
            path = f"/internal/subscriptions/{quote(subscription, safe='')}/failed"
            try:
                answer = await dispatchers.request("POST", path)
            except CallFailed as error:
                logger.warning("no dispatcher ends a subscription", reason=str(error))
                return
            if answer.status_code not in (204, 404):
                logger.warning("a subscription was not ended", status=answer.status_code)
                return

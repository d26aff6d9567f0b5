"""Asks the dispatcher to end subscriptions whose endpoint was disabled, where their protocol says so.

WS-Eventing ends a subscription when its endpoint fails for too long. The request is repeated until the log
ends the subscription.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import numpy as np
import structlog

from edn.http.control_client import CallFailed
from edn.model.namespace import subscription_of
from edn_server.dispatchers.client import Dispatchers
from edn_server.storage import addresses
from edn_server.subscriptions.registry import Hosting

logger = structlog.get_logger()


async def end_failed(hosting: Hosting, disabled: Sequence[str], dispatchers: Dispatchers) -> None:
    """Request the end of living subscriptions at disabled addresses whose protocol ends them."""
    for address in disabled:
        if not addresses.url_of(address).startswith("soap:"):
            continue
        for subscription in _living(hosting, address):
            path = f"/internal/subscriptions/{quote(subscription, safe='')}/failed"
            try:
                answer = await dispatchers.request("POST", path)
            except CallFailed as error:
                logger.warning("no dispatcher ends a subscription", reason=str(error))
                return
            if answer.status_code not in (204, 404):
                logger.warning("a subscription was not ended", status=answer.status_code)
                return


def _living(hosting: Hosting, address: str) -> list[str]:
    places = [place for place, known in enumerate(hosting.addresses) if known == address]
    numbers = np.flatnonzero(hosting.living & np.isin(hosting.address, places)).tolist()
    found = (hosting.versions.get(number) for number in numbers)
    return list(dict.fromkeys(subscription_of(version.id) for version in found if version is not None))

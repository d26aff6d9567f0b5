"""Shortens the leases of a service on PostgreSQL, so that tests of takeovers are short.

`EDN_TEST_LEASE_SECONDS` is the length of a lease; it is renewed three times as often.
"""

from __future__ import annotations

VARIABLE = "EDN_TEST_LEASE_SECONDS"


def plant(text: str) -> None:
    """Set the length of this process's leases; an empty text changes nothing."""
    if not text:
        return
    from edn.runtime.postgres import lease, writer

    lease.LEASE_SECONDS = float(text)
    lease.RENEW_SECONDS = writer.RENEW_SECONDS = lease.LEASE_SECONDS / 3

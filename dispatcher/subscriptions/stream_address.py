"""Addresses of streams: they stand in the place of a sink's URL where a subscription has no sink."""

from __future__ import annotations

_SCHEME = "stream:"


def stream_address(subscription: str) -> str:
    return _SCHEME + subscription


def is_stream(url: str) -> bool:
    return url.startswith(_SCHEME)

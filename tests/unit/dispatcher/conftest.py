"""Checks in every test that the dispatcher's classes are used in the thread that owns them."""

from __future__ import annotations

import dispatcher.services  # noqa: F401  (declares the owners of all parts)
from edn.runtime import ownership

ownership.enforce()

"""Hypothesis without deadlines: on a busy machine they tell of the machine, not of the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

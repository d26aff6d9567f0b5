"""Finds the programs that tests run beside Python; `tests/programs.sh` installs them."""

from __future__ import annotations

import os
import shutil

import pytest


def require(*names: str) -> str:
    """Returns the path of the first program; skips the test if one of them is missing, fails it in CI."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        unavailable(f"not installed: {', '.join(missing)}; `make programs` installs them on Debian")
    path = shutil.which(names[0])
    assert path is not None
    return path


def unavailable(reason: str) -> None:
    """Skips the test; in CI, where nothing may be skipped for want of a program, fails it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)

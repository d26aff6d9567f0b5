"""Keeps data files to their owner: they hold events, signing secrets and digests of keys."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def keep_private() -> None:
    """Make whatever this process writes from now on readable by its owner only."""
    os.umask(0o077)


def protect(folder: Path) -> None:
    """Close a data folder, and what an earlier version or another umask left in it, to everybody else."""
    for path in (folder, *folder.rglob("*")):
        # Somebody else's, or gone by now; a link's mode is its target's.
        with contextlib.suppress(OSError):
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)

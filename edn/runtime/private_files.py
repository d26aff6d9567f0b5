"""File permissions: data files contain events, signing keys and digests of API keys."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def keep_private() -> None:
    """Restricts new files of this process to their owner."""
    os.umask(0o077)


def protect(folder: Path) -> None:
    """Restricts a data folder and its files to their owner."""
    for path in (folder, *folder.rglob("*")):
        # The file may belong to another user or be gone; a link's mode is its target's.
        with contextlib.suppress(OSError):
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)

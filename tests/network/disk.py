"""Disks for tests: a small one, and one that fails on command.

`FaultyDisk` compiles `faultdisk.c` and gives the environment for processes that shall use it. `small_disk` is
a folder that holds a few megabytes: a tmpfs where mounting is permitted, otherwise a `FaultyDisk` with a
capacity, so that the same tests run everywhere.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.programs import require

_SOURCE = Path(__file__).with_name("faultdisk.c")
_BALLAST = "ballast"


class FaultyDisk:
    """The files below a folder, for processes started with `environment`."""

    def __init__(self, folder: Path, work: Path, *, capacity: int | None = None) -> None:
        """`work` is a folder for the library and the control file, outside `folder`."""
        work.mkdir(parents=True, exist_ok=True)
        library = work / "faultdisk.so"
        subprocess.run(
            [require("gcc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True
        )
        self._control = work / "control"
        self._control.write_text("")
        self.environment = {
            "LD_PRELOAD": str(library),
            "EDN_FAULT_ROOT": str(folder.resolve()),
            "EDN_FAULT_CONTROL": str(self._control),
        }
        if capacity is not None:
            self.environment["EDN_FAULT_CAPACITY"] = str(capacity)

    def fail(self, call: str, action: str, suffix: str, skip: int = 0) -> None:
        """From now on calls of a kind on files of a name do this; see `faultdisk.c`."""
        self._write(f"{call} {action} {suffix} {skip}\n")

    def heal(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        fresh = self._control.with_name("control.new")
        fresh.write_text(text)
        fresh.replace(self._control)


@dataclass
class SmallDisk:
    folder: Path
    capacity: int
    #: for processes that use it
    environment: dict[str, str] = field(default_factory=dict)

    def free(self) -> int:
        if self.environment:
            used = sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())
            return max(0, self.capacity - used)
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, left: int = 0) -> None:
        """A foreign file takes all room but so many bytes; what is freed later too, when called again."""
        with (self.folder / _BALLAST).open("ab") as file:
            step = 1 << 20
            while step >= 4096:
                growth = min(step, self.free() - left)
                try:
                    if growth > 0:
                        os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, growth)
                        continue
                except OSError:  # somebody else was quicker
                    pass
                step //= 4

    def empty(self) -> None:
        """The foreign file goes away."""
        (self.folder / _BALLAST).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, capacity: int) -> Iterator[SmallDisk]:
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and os.environ.get("EDN_TEST_DISK") != "shim"
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={capacity},mode=700", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
    try:
        if mounted:
            yield SmallDisk(folder, capacity)
        else:
            disk = FaultyDisk(folder, folder.with_name(folder.name + "-work"), capacity=capacity)
            yield SmallDisk(folder, capacity, disk.environment)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)

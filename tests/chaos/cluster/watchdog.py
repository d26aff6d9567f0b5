"""Ends what a run has started, when the run is gone: `python -m tests.chaos.cluster.watchdog FOLDER`.

PostgreSQL's servers are no children of the run. Patroni starts them in sessions of their own, so that they
survive its death, and that of a run that was killed. The watchdog waits for the end of its standard input,
which the run holds open. If the folder of the run is still there then, it kills every process that works
inside it, releases the small disks in it and deletes it. A run that ends in good order has deleted it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: how the names of the folders of runs begin
FOLDERS = "edn-cluster-"
#: looks in a row without a process, because a dying one may have started another
_LOOKS, _LOOK_SECONDS = 3, 0.2


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[None]:
    """Has a watchdog wait for the end of this process, however it ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.cluster.watchdog", str(folder)],
        stdin=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[3],
        start_new_session=True,  # a terminal's signals are not for it
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


def check(folder: Path) -> None:
    """Raise unless it is the folder of a run: everything that works in it will be killed."""
    if folder.parent != Path(tempfile.gettempdir()) or not folder.name.removeprefix(FOLDERS):
        raise ValueError(f"the folder must be one of a run, got {str(folder)!r}")
    if not folder.name.startswith(FOLDERS):
        raise ValueError(f"the name of the folder must begin with {FOLDERS}, got {folder.name!r}")


def working_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is inside the folder."""
    check(folder)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # As text: the directory may be deleted.
                if os.readlink(entry / "cwd").startswith(f"{folder}/"):  # noqa: PTH115
                    found.append(int(entry.name))
    return found


def clear(folder: Path) -> None:
    """Kill the processes of a run, release its disks, delete its folder."""
    looks = 0
    while looks < _LOOKS:
        pids = working_in(folder)
        looks = 0 if pids else looks + 1
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    for line in Path("/proc/mounts").read_text().splitlines():
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    folder = Path(sys.argv[1])
    check(folder)
    while os.read(0, 1024):
        pass
    if folder.exists():
        clear(folder)


if __name__ == "__main__":
    main()

"""Runs a database server that ends with the benchmark, however that ends.

As a program it reads a command as JSON, starts it, and stops it by its process id when standard input ends.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from edn.tools.bench.delivery.program import program

#: seconds that a server may take to stop
STOP_SECONDS = 10.0


def unprivileged() -> str | None:
    """Returns the user that servers run as if this one is root."""
    if os.geteuid():
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def hand_over(folder: Path) -> None:
    """Gives a folder to the user that servers run as."""
    user = unprivileged()
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running_server(command: Sequence[str], log: Path) -> Iterator[psutil.Process]:
    settings = {"command": list(command), "user": unprivileged()}
    with program("edn.tools.bench.delivery.peers.database", settings=settings, log=log) as (_, ready):
        yield psutil.Process(ready["pid"])


def _main() -> None:
    settings = json.loads(sys.stdin.buffer.readline())
    user = settings["user"]
    server = subprocess.Popen(
        settings["command"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
        start_new_session=True,
    )
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())

    def watch() -> None:
        sys.stdin.buffer.read()
        ending.set()

    threading.Thread(target=watch, daemon=True).start()
    print(json.dumps({"pid": server.pid}), flush=True)  # noqa: T201
    while not ending.wait(0.5) and server.poll() is None:
        pass
    if server.poll() is None:
        server.send_signal(signal.SIGINT)  # PostgreSQL ends its sessions; Redis ends, too
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()


if __name__ == "__main__":
    _main()
    os._exit(0)  # the watching thread still holds standard input

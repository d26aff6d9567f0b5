"""Runs a module as a process that ends with its supervisor: `python -m edn.cli.child dispatcher …`.

The supervisor holds the other end of this process's standard input and never writes to it. When the
supervisor ends, even by SIGKILL, reading ends; then this process sends itself SIGTERM.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

#: seconds for a clean stop, before the process exits without one
STOP_SECONDS = 15.0


def _stop_with_the_supervisor() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_the_supervisor, name="supervisor-watch", daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

"""Run a module as a child that never outlives its supervisor: `python -m edn.cli.child dispatcher …`.

The supervisor holds the other end of this process's standard input and never writes to it. When it is gone,
however it went, reading ends; then this process asks itself to stop, as an operator would.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

#: a clean stop may take so long before the process is ended without one
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

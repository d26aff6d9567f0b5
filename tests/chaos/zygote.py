"""`python -m tests.chaos.zygote`: has the services imported and their kernels loaded, and forks on request.

A service costs seconds of imports before it does anything. A run that kills hundreds of them would spend its
time there, so they are forked from a process that has done all that and nothing else: no thread, no socket,
no file. Each is a process of its own in every respect that a kill, a stop or a full disk could matter for.

One JSON object a line. In: {"module", "arguments", "stdout", "stderr", "environment"}. Out: {"imported": …}
once, then {"started": pid} for each of those, in order, and {"ended": pid, "code": …} for each that ends.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from tests import faults
from tests.network.processes import die_with_parent


def _load() -> dict[str, Callable[[list[str]], int]]:
    import numpy as np

    import dispatcher.__main__
    import edn_server.__main__
    from dispatcher.routing.table import RoutingTable
    from edn import index
    from edn.summary import Maximal, Summary

    index.warm()
    # Everything that a kernel is compiled for at its first call is called once.
    bounds = np.sort(np.random.default_rng(1).uniform(size=(2, 400, 2)), axis=0)
    maximal = Maximal(2)
    maximal.insert(np.arange(400), bounds[0], bounds[1])
    maximal.delete(np.arange(10))
    table = RoutingTable()
    table.add("s")
    table.widen("s", 1, bounds[0], bounds[1], epoch=1, seq=1)
    table.accept("s", 1, 0, {1: Summary.build(*maximal.rects())})
    table.widen("s", 1, bounds[0][:1], bounds[1][:1], epoch=1, seq=2)
    table.route(1, bounds[0])
    return {"dispatcher": dispatcher.__main__.main, "edn_server": edn_server.__main__.main}


def _become(main: Callable[[list[str]], int], order: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for path, handle in ((os.devnull, 0), (order["stdout"], 1), (order["stderr"], 2)):
            flags = os.O_RDONLY if handle == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
            opened = os.open(path, flags, 0o600)
            os.dup2(opened, handle)
            os.close(opened)
        os.closerange(3, 64)
        random.seed()
        os.environ.update(order["environment"])
        faults.plant(os.environ)
        code = main(order["arguments"])
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    die_with_parent()
    mains = _load()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    _say(imported=True)
    pending = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
            _reap()
        if 0 in readable:
            data = os.read(0, 65_536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _become(mains[order["module"]], order)
                _say(started=pid)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say(ended=pid, code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

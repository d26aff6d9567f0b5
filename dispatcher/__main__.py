"""`python -m dispatcher`: runs the dispatcher.

Exit codes: 0 stopped by SIGTERM or SIGINT; 1 could not start (data folder, database, secret, port) or failed;
2 wrong settings; 6 another dispatcher owns the log in the database, and a restart waits for it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from dispatcher.app import create_app
from dispatcher.config import Settings
from dispatcher.store.sqlite.log import DatabaseError
from edn import summary
from edn.errors import EdnError
from edn.http.request_limits import Connections
from edn.runtime import disk, tracing
from edn.runtime.disk import keep_private
from edn.runtime.probes import WaitingProbes
from edn.runtime.process import CannotStart, bind, configure_logs, lock_folder, report_failure, serve, url_of
from partitioning import online


def main(argv: list[str] | None = None) -> int:
    listeners: list[socket.socket] = []
    try:
        settings = Settings.load(sys.argv[1:] if argv is None else argv, os.environ)
        keep_private()
        configure_logs()
        tracing.configure("edn-dispatcher")
        lock = None
        if settings.database is None:
            lock = disk.open_with_room(settings.folder, lambda: lock_folder(settings.folder))
        listeners.append(bind(settings.host, settings.port))
        bound: dict[str, object] = {"url": url_of(listeners[0], settings.scheme)}
        ready = {"role": "dispatcher", **bound}
        if settings.admin_port is not None:
            listeners.append(bind(settings.admin_host, settings.admin_port))
            bound["admin_port"] = listeners[1].getsockname()[1]
            ready["admin"] = url_of(listeners[1], settings.scheme)
        settings = settings.model_copy(update=bound)
        if settings.database is None:
            app = disk.open_with_room(settings.folder, lambda: create_app(settings))
        else:
            # A requested stop exits with code 0, also while the process waits for the lease.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            with WaitingProbes(listeners[0], "another dispatcher owns the log"):
                app = create_app(settings)
    except EdnError as error:
        for listener in listeners:
            listener.close()
        return report_failure("dispatcher", error)
    except DatabaseError as error:  # such as a full disk
        return report_failure("dispatcher", CannotStart(f"cannot open the log in {settings.data}: {error}"))
    # Compile now, so that the first event does not wait for it.
    summary.compile_kernels()
    online.warm()
    connections = Connections(settings.connections_per_address, settings.uncounted_clients)
    services = app.state.services
    serve(app, listeners, {**ready, "log": services.log.id}, connections, services.tls)
    if lock is not None:
        os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())

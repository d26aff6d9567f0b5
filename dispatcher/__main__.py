"""`python -m dispatcher`: the dispatcher as a process.

Exit codes: 0 stopped by SIGTERM or SIGINT; 1 it could not start (data folder, secret, port), or something
failed that nobody foresaw; 2 wrong settings.
"""

from __future__ import annotations

import os
import sys

from dispatcher.app import create_app
from dispatcher.config import Settings
from dispatcher.store.event_log import DatabaseError
from edn import summary
from edn.errors import EdnError
from edn.http.request_limits import Connections
from edn.runtime import disk
from edn.runtime.private_files import keep_private
from edn.runtime.process import CannotStart, bind, configure_logs, lock_folder, report_failure, serve, url_of
from partitioning import online


def main(argv: list[str] | None = None) -> int:
    try:
        settings = Settings.load(sys.argv[1:] if argv is None else argv, os.environ)
        keep_private()
        configure_logs()
        lock = disk.open_with_room(settings.data, lambda: lock_folder(settings.data))
        listeners = [bind(settings.host, settings.port)]
        found: dict[str, object] = {"url": url_of(listeners[0])}
        ready = {"role": "dispatcher", **found}
        if settings.admin_port is not None:
            listeners.append(bind(settings.admin_host, settings.admin_port))
            found["admin_port"] = listeners[1].getsockname()[1]
            ready["admin"] = url_of(listeners[1])
        settings = settings.model_copy(update=found)
        app = disk.open_with_room(settings.data, lambda: create_app(settings))
    except EdnError as error:
        return report_failure("dispatcher", error)
    except DatabaseError as error:  # a full disk, say
        return report_failure(
            "dispatcher", CannotStart(f"the log in {settings.data} cannot be opened: {error}")
        )
    # The first event shall not wait for a compiler.
    summary.compile_kernels()
    online.warm()
    connections = Connections(settings.connections_per_address, settings.uncounted_clients)
    serve(app, listeners, {**ready, "log": app.state.services.log.id}, connections)
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())

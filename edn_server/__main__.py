"""`python -m edn_server`: the server as a process.

Exit codes: 0 stopped by SIGTERM or SIGINT; 1 it could not start (data folder, database, secret, port), or
something failed that nobody foresaw; 2 wrong settings; 3 the dispatcher refused it; 4 memory and disk no
longer agreed, and a restart mends that; 5 the disk failed (an I/O error), and a restart recovers from what it
holds; 6 another process owns this server's shard of the database, and a restart waits for it.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys

from edn.errors import EdnError
from edn.http.request_limits import Connections
from edn.runtime import disk, tracing
from edn.runtime.disk import keep_private
from edn.runtime.probes import WaitingProbes
from edn.runtime.process import bind, configure_logs, report_failure, serve, url_of
from edn.warm import warm
from edn_server.app import create_app
from edn_server.config import Settings
from edn_server.services import Services
from partitioning import online


def main(argv: list[str] | None = None) -> int:
    try:
        settings = Settings.load(sys.argv[1:] if argv is None else argv, os.environ)
        keep_private()
        configure_logs()
        tracing.configure("edn-server")
        _raise_descriptor_limit()
        if settings.database is None:
            services = disk.open_with_room(settings.folder, lambda: Services(settings))
            try:
                listener = bind(settings.host, settings.port)
            except EdnError:
                services.close()
                raise
        else:
            services, listener = _open_shard(settings)
    except EdnError as error:
        return report_failure("edn_server", error)
    if settings.nice:
        os.nice(settings.nice)
    # The first subscription shall not wait for a compiler.
    warm()
    online.warm()
    _tune_collector()
    settings = services.settings
    url = settings.advertise or url_of(listener, settings.scheme)
    connections = Connections(settings.connections_per_address, settings.uncounted_clients)
    ready = {"role": "server", "id": settings.id, "url": url}
    serve(create_app(services, url), [listener], ready, connections, services.tls)
    return services.exit_code


def _open_shard(settings: Settings) -> tuple[Services, socket.socket]:
    """Opens the server's shard, which may take a while: a spare waits until a server dies."""
    listener = bind(settings.host, settings.port)
    # A requested stop exits with code 0, also while the process waits.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if settings.spare:
        warm()  # a takeover shall not wait for it
        online.warm()
    reason = "this process is a spare" if settings.spare else "another process may own the shard"
    try:
        with WaitingProbes(listener, reason):
            return Services(settings), listener
    except BaseException:
        listener.close()
        raise


def _raise_descriptor_limit() -> None:
    """Use all descriptors that the operator allows: every address may have a connection of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tune_collector() -> None:
    """Run the garbage collector less often: reference counts free nearly all objects of a delivery."""
    gc.set_threshold(50_000, 20, 50)


if __name__ == "__main__":
    sys.exit(main())

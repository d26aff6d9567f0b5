"""`python -m edn_server`: the server as a process.

Exit codes: 0 stopped by SIGTERM or SIGINT; 1 it could not start (data folder, secret, port), or something
failed that nobody foresaw; 2 wrong flags; 3 the dispatcher refused it; 4 memory and disk no longer agreed,
and a restart mends that; 5 the disk failed (an I/O error), and a restart recovers from what it holds.
"""

from __future__ import annotations

import os
import sys

from edn import defects, storage
from edn.errors import EdnError
from edn.heads import Connections
from edn.privacy import keep_private
from edn.process import bind, configure_logs, serve, url_of
from edn.warm import warm
from edn_server.app import create_app
from edn_server.services import Node
from edn_server.settings import parse
from partitioning import online


def main(argv: list[str] | None = None) -> int:
    keep_private()
    configure_logs()
    defects.announce()
    try:
        settings = parse(sys.argv[1:] if argv is None else argv, os.environ)
        node = storage.open_with_room(settings.data, lambda: Node(settings))
        try:
            listener = bind(settings.host, settings.port)
        except EdnError:
            node.close()
            raise
    except EdnError as error:
        print(f"edn_server: {error.detail}", file=sys.stderr)  # noqa: T201  it never started
        return 1
    if settings.nice:
        os.nice(settings.nice)
    # The first subscription shall not wait for a compiler.
    warm()
    online.warm()
    url = settings.advertise or url_of(listener)
    connections = Connections(settings.connections_per_address, settings.uncounted_clients)
    serve(create_app(node, url), [listener], {"role": "server", "id": settings.id, "url": url}, connections)
    return node.exit_code


if __name__ == "__main__":
    sys.exit(main())

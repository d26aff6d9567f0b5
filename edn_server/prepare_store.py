"""`python -m edn_server.prepare_store`: creates the empty tables of a server, for `edn move-to`.

FOLDER creates a data folder, URL and SCHEMA a schema of a PostgreSQL database.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edn.errors import EdnError
from edn.runtime.disk import keep_private
from edn.runtime.process import report_failure
from edn_server.storage.database import SqliteStore


def main(arguments: list[str]) -> int:
    keep_private()
    try:
        if len(arguments) == 1:
            SqliteStore(Path(arguments[0])).close()
        else:
            from edn.runtime.postgres.database import Database
            from edn.runtime.postgres.schema import prepare
            from edn_server.storage.postgres.schema import MIGRATIONS

            prepare(Database.parse(*arguments, allow_single=True), "server", MIGRATIONS)
    except EdnError as error:
        return report_failure("edn_server", error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m dispatcher.prepare_store`: creates the empty tables of a dispatcher, for `edn move-to`.

FOLDER creates a data folder, URL and SCHEMA a schema of a PostgreSQL database.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from dispatcher.store.sqlite import schema as sqlite_schema
from edn.errors import EdnError
from edn.runtime import disk
from edn.runtime.disk import keep_private
from edn.runtime.process import report_failure


def main(arguments: list[str]) -> int:
    keep_private()
    try:
        if len(arguments) == 1:
            folder = Path(arguments[0])
            folder.mkdir(parents=True)
            with contextlib.closing(disk.connect(folder / "dispatcher.db")) as db:
                sqlite_schema.prepare(db, str(folder))
        else:
            from dispatcher.store.postgres.schema import MIGRATIONS
            from edn.runtime.postgres.database import Database
            from edn.runtime.postgres.schema import prepare

            prepare(Database.parse(*arguments, allow_single=True), "dispatcher", MIGRATIONS)
    except EdnError as error:
        return report_failure("dispatcher", error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

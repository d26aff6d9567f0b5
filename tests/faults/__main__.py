"""`python -m tests.faults dispatcher|edn_server …`: a service with the faults that its environment names."""

from __future__ import annotations

import importlib
import os
import sys

from tests import faults


def main(argv: list[str]) -> int:
    service, arguments = (argv[0], argv[1:]) if argv else ("", [])
    if service not in faults.SERVICES:
        print(f'service must be one of {", ".join(faults.SERVICES)}, got "{service}"', file=sys.stderr)
        return 2
    faults.plant(os.environ)
    code: int = importlib.import_module(f"{service}.__main__").main(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m dispatcher.print_openapi`: prints the OpenAPI document of the public interface."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from dispatcher.app import create_app
from dispatcher.config import Settings


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="edn-openapi-") as folder:
        settings = {"data": Path(folder), "secret": "for the document only, and never used"}
        app = create_app(Settings.model_validate(settings))
        sys.stdout.write(json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

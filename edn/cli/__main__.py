"""Runs `edn` as `python -m edn.cli`, where the console script is not on the path."""

from edn.cli import main

main()

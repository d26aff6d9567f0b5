"""`python -m edn.cli` is `edn`, where the console script is not on the path."""

from edn.cli import main

main()

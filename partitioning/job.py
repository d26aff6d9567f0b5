"""Runs `edn repartition plan` as a program of its own, for `spark-submit` and `python -m`."""

from partitioning.command import main

if __name__ == "__main__":
    main()

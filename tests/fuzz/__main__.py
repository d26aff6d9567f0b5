"""`python -m tests.fuzz TARGET --seconds N`: atheris, guided by coverage, until N seconds of CPU are used."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

#: not read from `targets`, which is imported when its parsers are instrumented
TARGETS = ("json", "filter", "cloudevents", "dialects", "soap", "xpath", "wire", "server", "retry")


def _modules(folder: str) -> list[str]:
    """All below a package: atheris leaves out modules by their full names only."""
    root = Path(__file__).resolve().parents[2]
    return [
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in sorted((root / folder).rglob("*.py"))
    ]


def main() -> None:
    import atheris  # here, for it is not everywhere, and tests ask this module for its targets

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU (%(default)s)")
    parser.add_argument("--corpus", type=Path, default=Path(".fuzz"), help="kept between runs (%(default)s)")
    given = parser.parse_args()
    # Kernels are compiled by numba, which cannot read instrumented code.
    kernels = [
        "edn.protocol.gather",
        "edn.index",
        "edn.summary",
        *_modules("edn/index"),
        *_modules("edn/summary"),
    ]
    with atheris.instrument_imports(
        include=["edn", "edn_server", "dispatcher.api.soap", "tests.fuzz.wire"], exclude=kernels
    ):
        from tests.fuzz import targets
        from tests.fuzz.inputs import inputs_of
    folder = given.corpus / given.target
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(inputs_of(given.target)):
        (folder / f"seed{number}").write_bytes(seed)
    target = targets.TARGETS[given.target]
    inputs = 0

    def once(data: bytes) -> None:
        nonlocal inputs
        if inputs % 1000 == 0 and time.process_time() > given.seconds:
            print(f"{given.target}: {inputs} inputs, {time.process_time():.0f} s of CPU, nothing found")
            sys.stdout.flush()
            import atexit
            import os

            atexit._run_exitfuncs()  # a target's temporary folder
            os._exit(0)  # libFuzzer knows no end by CPU time
        inputs += 1
        target(data)

    options = [
        sys.argv[0],
        str(folder),
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-max_len=4096",
        "-print_final_stats=1",
    ]
    options += [f"-artifact_prefix={given.corpus}/{given.target}-"]
    atheris.Setup(options, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

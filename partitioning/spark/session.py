"""Opens a Spark session with the settings that the job requires."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from edn.errors import Unavailable

_JAVA_17 = (
    "Install Java 17: on Debian and Ubuntu `apt-get install openjdk-17-jre-headless`; elsewhere any JRE 17, "
    "with JAVA_HOME naming its folder."
)


def java_missing() -> str | None:
    """Return why Spark cannot start Java, or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return None if java.exists() else f"JAVA_HOME is {home}, but {java} does not exist"
    return None if shutil.which("java") else "Spark needs Java, but `java` is not on the PATH"


def new_session(
    *, master: str | None = None, driver_memory: str | None = None, jars: str | None = None
) -> SparkSession:
    """Return the active session, as under `spark-submit`, or a new one at `master`.

    `driver_memory` has an effect only for the first session of the process.
    """
    problem = java_missing()
    if problem is not None:
        raise Unavailable(f"{problem}. {_JAVA_17}")
    # Workers must run this interpreter; another one may lack the packages or have another version.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName("edn repartition")
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            # A local session need not be reachable from outside.
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1")
    if driver_memory is not None:
        builder = builder.config("spark.driver.memory", driver_memory)
    if jars is not None:
        builder = builder.config("spark.jars", jars)
    builder = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.adaptive.enabled", "true")
    )
    is_local = master is not None and master.startswith("local")
    with _java_log(is_local) as log:
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise Unavailable(
                f"Java exited as soon as Spark started it{_last_line(log)}; it may be the wrong version. "
                f"{_JAVA_17}"
            ) from None
        except Py4JJavaError as error:
            where = "" if master is None else f" at {master}"
            raise Unavailable(f"Spark cannot start{where}: {reason(error)}") from None


@contextlib.contextmanager
def _java_log(is_local: bool) -> Iterator[IO[bytes] | None]:
    """Keep the log of a local Java process from the terminal; a failing job raises its error anyway.

    Java inherits the descriptor, before any setting of Spark could silence it.
    """
    if not is_local:
        yield None
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), 2)
            try:
                yield log
            finally:
                os.dup2(terminal, 2)
    finally:
        os.close(terminal)


def _last_line(log: IO[bytes] | None) -> str:
    """Return what Java said last; the script that starts it follows with its own complaint."""
    if log is None:
        return ""
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if "spark-class: " not in line]
    return f" ({lines[-1][:200]})" if lines else ""


def reason(error: Py4JJavaError) -> str:
    """Return the message of a Java exception, without its stack trace."""
    thrown = error.java_exception
    return str(thrown.getMessage() or thrown.toString()).partition("\n")[0]

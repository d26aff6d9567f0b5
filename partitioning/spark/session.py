"""A Spark session with the settings that the job relies on, or a word on why there is none."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from edn.errors import Unavailable

_JAVA_17 = (
    "Install Java 17: on Debian and Ubuntu `apt-get install openjdk-17-jre-headless`; elsewhere any JRE 17, "
    "with JAVA_HOME naming its folder."
)


def java_missing() -> str | None:
    """Why Spark could not start Java, or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return None if java.exists() else f"JAVA_HOME is {home}, but there is no {java}"
    return None if shutil.which("java") else "Spark needs Java, and no `java` is on the PATH"


def new_session(
    *, master: str | None = None, driver_memory: str | None = None, jars: str | None = None
) -> SparkSession:
    """The active session if there is one, as under `spark-submit`; otherwise one at `master`.

    Memory of the driver counts only when the session is the first of the process.
    """
    problem = java_missing()
    if problem is not None:
        raise Unavailable(f"{problem}. {_JAVA_17}")
    # Workers must run this interpreter: another one lacks the packages, or is another version.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName("edn repartition")
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            # One machine: no need to be reachable from outside.
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
        # A shuffle of this job is a few megabytes of tallies or one sort whose partitions are given.
        .config("spark.sql.adaptive.enabled", "true")
    )
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise Unavailable(
            f"Java ended as soon as Spark had started it: is it another version? {_JAVA_17}"
        ) from None
    except Py4JJavaError as error:
        where = "" if master is None else f" at {master}"
        raise Unavailable(f"Spark does not start{where}: {reason(error)}") from None


def reason(error: Py4JJavaError) -> str:
    """What Java has to say, without the calls that led there."""
    thrown = error.java_exception
    return str(thrown.getMessage() or thrown.toString()).partition("\n")[0]

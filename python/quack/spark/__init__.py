"""Spark reads from and writes to the cluster: the data source `quack`.

``quack.spark.register(spark)`` makes ``spark.read.format("quack")`` known to a session. Where the
package is installed for driver and executors, Spark finds the source by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from quack.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MINIMUM_JAVA", "MINIMUM_SPARK", "check_environment", "register", "start_session"]

MINIMUM_SPARK = (4, 3)
MINIMUM_JAVA = 17


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"


def check_environment() -> None:
    """Check that Spark and Java are there and new enough.

    Raises:
        SparkError: what is missing or too old, what was expected, and how to get it.

    """
    try:
        import pyspark
    except ImportError:
        raise SparkError(
            f"pyspark is not installed for {sys.executable}: pip install 'quack-duckdb[spark]'"
        ) from None
    expected = ".".join(str(number) for number in MINIMUM_SPARK)
    if _numbers(pyspark.__version__) < MINIMUM_SPARK:
        raise SparkError(
            f"pyspark {pyspark.__version__} is too old, expected {expected} or newer: "
            "pip install --upgrade 'quack-duckdb[spark]'"
        )
    java = _java()
    fix = f"install Java {MINIMUM_JAVA} or newer, or set JAVA_HOME to one"
    if shutil.which(java) is None:
        raise SparkError(f"no Java: '{java}' is not there; {fix}")
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkError(f"'{java} -version' does not run: {error}; {fix}") from None
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found.group(1)) < MINIMUM_JAVA:
        first = told.strip().splitlines()[:1]
        raise SparkError(f"'{java}' is {first[0] if first else 'of unknown version'}; {fix}")


def register(spark: SparkSession) -> SparkSession:
    """Make ``format("quack")`` known to a session; returns the session.

    Raises:
        SparkError: the session's Spark is too old.

    """
    if _numbers(spark.version) < MINIMUM_SPARK:
        expected = ".".join(str(number) for number in MINIMUM_SPARK)
        raise SparkError(f"Spark {spark.version} is too old, expected {expected} or newer")
    from quack.spark.source import QuackDataSource

    spark.dataSource.register(QuackDataSource)
    return spark


def _first_line(error: Exception) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    # Py4J begins with its own call, then comes what Java said.
    said = (
        line.removeprefix(": ") for line in lines if line and "error occurred while" not in line
    )
    return next(said, type(error).__name__)


def start_session(master: str = "local[*]", **settings: Any) -> SparkSession:
    """Start, or find, a Spark session that knows ``format("quack")``.

    Args:
        master: of Spark.
        settings: of Spark, with ``__`` for dots: ``spark__ui__enabled="false"``.

    Raises:
        SparkError: Spark or Java are missing or too old, or Spark does not start.

    """
    check_environment()
    from pyspark.sql import SparkSession

    # Workers run this Python, which has the packages, not whichever comes first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), str(value))
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise SparkError(
            f"Spark does not start with master {master}: {_first_line(error)} (its output above "
            "may say more); expected local[N], local[*], or the URL of a Spark cluster"
        ) from None
    return register(session)

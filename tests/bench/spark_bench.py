"""Spark reads and appends a million rows through the connector, Parquet and JDBC, in one run.

Three voters run over mTLS; Spark is `local[2]`; rows are (long, double, string). Each round
measures all of them, and the medians are compared: aim is a read within twice that of Parquet and
an append ahead of JDBC. JDBC goes to a PostgreSQL that is started for it, with Spark's own
source and its defaults: `apt-get install postgresql libpostgresql-jdbc-java`; without these it
is left out and the result says so. The last line is one JSON object; the exit code is 0 when the
aims that were measured are reached. Run it with PYTHONPATH=python:tests/e2e.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import quack.spark
from postgres_server import DRIVER, JAR, Postgres, postgres, programs
from quack.cluster.local import LocalCluster

READ_RATIO_MAX = 2.0


def seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="quack-bench-") as name:
        folder = pathlib.Path(name)
        served = postgres() if programs() else contextlib.nullcontext()
        with LocalCluster.create(folder / "cluster", 3) as cluster, served as jdbc:
            cluster.start()
            return report(measure(cluster, folder, jdbc, given.rows, given.rounds), given.rows)


def measure(
    cluster: LocalCluster, folder: pathlib.Path, jdbc: Postgres | None, rows: int, rounds: int
) -> dict[str, list[float]]:
    settings = {"spark__ui__enabled": "false"}
    if jdbc:
        settings["spark__jars"] = str(JAR)
    spark = quack.spark.start_session("local[2]", **settings)
    where = {
        "url": "quack:" + ",".join(node.endpoint for node in cluster.nodes),
        "token": cluster.token,
        "ca_file": str(cluster.folder / "ca" / "ca.pem"),
    }
    frame = spark.range(0, rows, 1, 4).selectExpr(
        "id", "id * 0.5D AS x", "concat('name ', id) AS s"
    )

    def look(read) -> None:
        (row,) = read.selectExpr("count(*) n", "sum(x) x", "max(s) s").collect()
        assert row.n == rows, row

    def of_quack(number: int):
        return spark.read.format("quack").options(**where, table=f"t{number}").load()

    def append(number: int) -> None:
        writing = frame.write.format("quack").options(**where, create_table="true")
        writing.option("table", f"t{number}").mode("append").save()

    taken: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        file, table = str(folder / f"parquet{number}"), f"t{number}"
        actions: dict[str, Callable[[], object]] = {
            "parquet_write": lambda file=file: frame.write.parquet(file),
            "quack_append": lambda number=number: append(number),
            "parquet_read": lambda file=file: look(spark.read.parquet(file)),
            "quack_read": lambda number=number: look(of_quack(number)),
        }
        if jdbc:
            given = {"driver": DRIVER, "user": jdbc.user, "password": jdbc.password}
            actions["jdbc_append"] = lambda table=table, given=given: frame.write.jdbc(
                jdbc.url, table, properties=given
            )
            actions["jdbc_read"] = lambda table=table, given=given: look(
                spark.read.jdbc(jdbc.url, table, properties=given)
            )
        for name, action in actions.items():
            took = seconds(action)
            if number > 0:  # the first round warms up
                taken.setdefault(name, []).append(took)
                print(f"round {number}: {name} {took:.2f} s", flush=True)
    spark.stop()
    return taken


def report(taken: dict[str, list[float]], rows: int) -> int:
    median = {name: round(statistics.median(values), 2) for name, values in taken.items()}
    result: dict[str, object] = {"rows": rows, "seconds": median}
    read = median["quack_read"] / median["parquet_read"]
    result["read_to_parquet"] = round(read, 2)
    result["append_to_parquet"] = round(median["quack_append"] / median["parquet_write"], 2)
    reached = read <= READ_RATIO_MAX
    if "jdbc_append" in median:
        append = median["quack_append"] / median["jdbc_append"]
        result["append_to_jdbc"] = round(append, 2)
        result["read_to_jdbc"] = round(median["quack_read"] / median["jdbc_read"], 2)
        reached = reached and append < 1
    else:
        result["jdbc"] = "left out: PostgreSQL or its JDBC driver is not installed"
    result["reached"] = reached
    print(json.dumps(result))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())

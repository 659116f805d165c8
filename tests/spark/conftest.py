"""One Spark session and one three-node cluster for all tests of the folder."""

from __future__ import annotations

import os
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator

import duckdb
import pytest
from pipeline_jobs import Pipeline

import postgres_server
from quack.cluster.local import LocalCluster
from quack.pipeline import Cluster

# Workers are started by this Python and by nothing that comes first in PATH.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three voters over mTLS."""
    with LocalCluster.create(tmp_path_factory.mktemp("spark"), 3) as running:
        running.start()
        yield running


@pytest.fixture(scope="session")
def spark():
    """A session with two threads and three attempts of a task."""
    import quack.spark

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = quack.spark.start_session(
            "local[2,3]",
            spark__ui__enabled="false",
            spark__jars=str(postgres_server.JAR),
            spark__sql__shuffle__partitions="2",
            spark__sql__session__timeZone="Europe/Berlin",
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def options(spark_cluster: LocalCluster) -> dict[str, str]:
    """What every read and write needs to reach the cluster."""
    return {
        "url": "quack:" + ",".join(node.endpoint for node in spark_cluster.nodes),
        "token": spark_cluster.token,
        "ca_file": str(spark_cluster.folder / "ca" / "ca.pem"),
    }


@pytest.fixture
def sql(spark_cluster: LocalCluster) -> Iterator[Callable[..., list]]:
    """Run a statement on the cluster in a session of plain DuckDB; returns its rows."""
    session = spark_cluster.connect(consistency="linearizable")
    session.execute("USE cp")

    def run(statement: str, *values: object) -> list:
        return session.execute(statement, list(values)).fetchall()

    yield run
    try:
        session.close()
    except duckdb.Error:
        pass


@pytest.fixture
def table() -> str:
    """A fresh name."""
    return "t" + uuid.uuid4().hex[:12]


@pytest.fixture
def pipeline(spark, sql, spark_cluster, tmp_path, monkeypatch) -> Pipeline:
    """A lake in a fresh folder and a fresh schema of the catalog."""
    monkeypatch.setenv("QUACK_PIPELINE_TOKEN", spark_cluster.token)
    cluster = Cluster(
        url="quack:" + ",".join(node.endpoint for node in spark_cluster.nodes),
        token_env="QUACK_PIPELINE_TOKEN",
        ca_file=spark_cluster.folder / "ca" / "ca.pem",
    )
    schema = "lake_" + uuid.uuid4().hex[:8]
    location = str(tmp_path / "lake")
    return Pipeline(spark, tmp_path, cluster, schema, sql, location, spark_cluster.token, {})

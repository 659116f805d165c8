"""Goal: the Spark example of the README runs as it stands there."""

from __future__ import annotations

import pathlib
import re

import pytest

import quack.pipeline

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_the_example_of_the_readme(spark, sql, spark_cluster):
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    (example,) = (block for block in blocks if "quack.spark" in block)
    example = example.replace("/tmp/quack-dev", str(spark_cluster.folder))
    names = {"ports": [node.port for node in spark_cluster.nodes]}
    for _ in range(2):
        exec(compile(example, "README.md", "exec"), names)
        assert sql("SELECT count(*), count(*) FILTER (taken) FROM seats") == [(1000, 100)]
    assert names["taken"].count() == 100


def test_the_stream_of_changes_of_the_readme(spark, sql, options, tmp_path):
    (example,) = (b for b in re.findall(r"```python\n(.*?)```", README, re.S) if "readStream" in b)
    sql("SELECT quack_changes_set_retention('64MB')")
    sql("CREATE TABLE parts (id INTEGER PRIMARY KEY, stock INTEGER)")
    sql("INSERT INTO parts VALUES (1, 10)")
    names = {"spark": spark, "where": options, "checkpoint": str(tmp_path)}
    exec(compile(example, "README.md", "exec"), names)
    assert sql("SELECT change, id, stock FROM parts_log") == [("insert", 1, 10)]


def test_the_job_of_the_readme(spark, sql, spark_cluster, tmp_path, monkeypatch):
    (job,) = (
        block for block in re.findall(r"```yaml\n(.*?)```", README, re.S) if "job_id" in block
    )
    nodes = ",".join(node.endpoint for node in spark_cluster.nodes)
    job = job.replace("127.0.0.1:9494", nodes).replace("/tmp/quack-dev", str(spark_cluster.folder))
    for name in ("quack-lake", "quack-seats"):
        job = job.replace(f"/tmp/{name}", str(tmp_path / name))
    (tmp_path / "seats.yaml").write_text(job)
    monkeypatch.setenv("QUACK_TOKEN", spark_cluster.token)
    for day, text in (
        ("monday", '{"seat": 1, "room": "a", "price": 2}'),
        ("tuesday", '{"seat": 2}'),
    ):
        arrived = tmp_path / "quack-seats" / day
        arrived.mkdir(parents=True)
        (arrived / "seats.json").write_text(text + "\n")
        loaded = quack.pipeline.load_job(tmp_path / "seats.yaml", {"day": day})
        assert quack.pipeline.run(loaded, spark=spark).ok
    assert sql("SELECT seat, room, price FROM all_seats") == [(1, "a", 2.0)]
    assert sql("SELECT count(*) FROM quack_lake.quack_live_files") == [(1,)]

"""Goal: the Spark example of the README runs as it stands there."""

from __future__ import annotations

import pathlib
import re

import pytest

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

"""Goal: the example of the pipeline runs as it stands, here with two months."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "flights.py"

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_the_example(spark, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("flights_example", EXAMPLE)
    assert spec is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    done = example.main(tmp_path / "all", 2, spark)
    assert done.ok
    compacted = done.steps[0].counts
    assert (compacted["files_before"], compacted["files"], compacted["rows"]) == (6, 3, 51_955)
    assert done.steps[1].counts["files"] == 6
    assert done.steps[2].counts["rows"] == 51_955
    assert done.steps[2].counts["orphans"] == 0
    said = capsys.readouterr().out
    assert "micro-batch 0: {'rows': 27004" in said
    assert "Chicago" in said

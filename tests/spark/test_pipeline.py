"""Goal: a pipeline brings all good rows or none, once, and says what is wrong with the rest."""

from __future__ import annotations

import datetime
import json
import pathlib

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml
from killing import Driver, wait_for

import quack.cli.main
import quack.pipeline
from quack.errors import ConfigError, PipelineError, SparkError, StorageError
from quack.pipeline import load_job

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_rows_come_once_however_often_the_job_runs(pipeline):
    job = pipeline.job(pipeline.ingest(0, 1000), {"kind": "verify"}, job_id="January")
    first = quack.pipeline.run(job, spark=pipeline.spark)
    assert [step.state for step in first.steps] == ["done", "done"]
    assert first.steps[0].counts["rows"] == 1000
    assert first.steps[0].counts["files"] == 3
    files = pipeline.files()
    assert first.steps[0].counts["bytes"] == sum(file.stat().st_size for file in files)
    assert all(file.parents[1].name.startswith("January.") for file in files)

    again = quack.pipeline.run(job, spark=pipeline.spark)
    assert [step.state for step in again.steps] == ["already_done", "done"]
    assert again.steps[0].counts == first.steps[0].counts
    assert pipeline.files() == files
    assert pipeline.ids() == list(range(1000))
    assert pipeline.metadata("ducklake_table_stats", "record_count, next_row_id") == [(1000, 1000)]
    assert len(pipeline.metadata("ducklake_snapshot")) == 2
    assert pipeline.metadata("quack_run") == []


def test_a_second_job_adds_rows_and_old_snapshots_stay(pipeline):
    pipeline.run(pipeline.ingest(0, 10))
    pipeline.run(pipeline.ingest(10, 25))
    assert pipeline.ids() == list(range(25))
    old = pipeline.sql(f"SELECT sum(record_count) FROM {pipeline.schema}.quack_files_at('rows', 1)")
    assert old == [(10,)]


def test_a_job_id_names_one_piece_of_work(pipeline):
    pipeline.run(pipeline.ingest(0, 10), job_id="mine")
    with pytest.raises(PipelineError, match="committed with another definition"):
        pipeline.run(pipeline.ingest(10, 20), job_id="mine")
    assert pipeline.ids() == list(range(10))


def test_a_step_keeps_its_name_when_others_come(pipeline):
    ingest = pipeline.ingest(0, 10)
    pipeline.run(ingest, job_id="grows")
    grown = pipeline.run({"kind": "compact", "table": "rows"}, ingest, job_id="grows")
    assert [step.state for step in grown.steps] == ["done", "already_done"]
    with pytest.raises(
        PipelineError, match="step ingest-1 of job grows was committed with another"
    ):
        pipeline.run(pipeline.ingest(10, 20), ingest, job_id="grows")
    assert pipeline.ids() == list(range(10))


def test_metadata_say_what_is_in_the_files(pipeline):
    pipeline.run(pipeline.ingest(0, 100, sort_by=["id"]))
    rows = pipeline.sql(
        "SELECT p.partition_value, f.record_count, f.footer_size, f.path, s.min_value, s.max_value, "
        f"s.null_count FROM {pipeline.schema}.ducklake_data_file f "
        f"JOIN {pipeline.schema}.ducklake_file_partition_value p USING (data_file_id) "
        f"JOIN {pipeline.schema}.ducklake_file_column_stats s USING (data_file_id) "
        "WHERE s.column_id = 1 ORDER BY 1"
    )
    assert [row[:2] + row[4:] for row in rows] == [
        ("p0", 34, "0", "99", 0),
        ("p1", 33, "1", "97", 0),
        ("p2", 33, "2", "98", 0),
    ]
    for row in rows:
        file = pathlib.Path(pipeline.location, "main", "rows", row[3])
        assert pq.read_metadata(file).serialized_size == row[2]
        ids = pq.read_schema(file).field("id").metadata
        assert ids[b"PARQUET:field_id"] == b"1"


def test_bad_rows_fail_the_step_and_leave_nothing(pipeline):
    step = pipeline.ingest(0, 100, rules={"range": {"id": {"min": 5, "max": 89}}})
    with pytest.raises(PipelineError, match=r"15 of 100 rows break its rules(.|\n)*range id"):
        pipeline.run(step)
    assert pipeline.files() == []
    assert pipeline.metadata("ducklake_table") == []
    assert pipeline.metadata("quack_run") == []


def test_bounds_that_are_no_values_of_their_columns_fail_before_anything_runs(pipeline):
    step = pipeline.ingest(0, 10, rules={"range": {"id": {"min": "many", "max": 5.7}}})
    with pytest.raises(PipelineError) as error:
        pipeline.run(step, dry_run=True)
    assert str(error.value).split("rules.range.")[1:] == [
        "id.min: 'many' is not a value of bigint, the type of the column\nstep ingest-1: ",
        "id.max: 5.7 is not a value of bigint, the type of the column",
    ]
    pipeline.run(pipeline.ingest(0, 10, rules={"range": {"id": {"min": "0", "max": 9.0}}}))
    assert pipeline.ids() == list(range(10))


def test_bad_rows_are_put_aside_and_counted(pipeline):
    folder = pipeline.folder / "texts"
    folder.mkdir()
    lines = ["id,part,amount", "1,a,1.5", "2,b,many", "3,,2", "4,c,3", "4,c,4", "5,d,-1", "6,e,6"]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    step = {
        "kind": "ingest",
        "table": "rows",
        "source": {
            "format": "csv",
            "path": str(folder),
            "options": {"header": True},
            "columns": {"id": "bigint", "part": "string", "amount": "double"},
        },
        "rules": {
            "not_null": ["part"],
            "unique": [["id"]],
            "check": {"positive": "amount >= 0"},
        },
        "on_bad_rows": "reject",
    }
    planned = pipeline.run(step, dry_run=True).steps[0]
    assert (planned.state, planned.counts) == ("planned", {"rows": 2, "rejected": 5})
    assert pipeline.files() == []
    done = pipeline.run(step, {"kind": "verify"})
    counts = done.steps[0].counts
    assert (counts["rows"], counts["rejected"]) == (2, 5)
    assert {
        "1 rows: cannot be parsed",
        "1 rows: not_null part",
        "2 rows: unique id",
        "1 rows: check positive",
    } - set(done.steps[0].notes) == {"1 rows: check positive"}  # the text has no amount either
    assert pipeline.ids() == [1, 6]
    assert done.ok
    rejected = duckdb.read_parquet(f"{pipeline.location}/_rejected/**/*.parquet")
    assert sorted(row[0] for row in rejected.project("id").fetchall()) == [2, 3, 4, 4, 5]


def test_columns_that_do_not_fit_are_named(pipeline):
    pipeline.run(pipeline.ingest(0, 10))
    wrong = pipeline.ingest(10, 20, select=["id", "CAST(amount AS int) AS amount", "1 AS extra"])
    with pytest.raises(PipelineError) as raised:
        pipeline.run(wrong)
    assert "column part is missing, expected varchar" in str(raised.value)
    assert "column amount: expected float64, came int32" in str(raised.value)
    assert "column extra is not in the table" in str(raised.value)
    with pytest.raises(PipelineError, match="type void has no place in the lake"):
        pipeline.run(pipeline.ingest(0, 1, table="other", select=["NULL AS nothing"]))
    with pytest.raises(PipelineError, match="partitioned by part, and the job says"):
        pipeline.run(pipeline.ingest(0, 1, partition_by=["id"]))
    with pytest.raises(PipelineError, match="rules.not_null names column nobody"):
        pipeline.run(pipeline.ingest(0, 1, rules={"not_null": ["nobody"]}))
    assert pipeline.ids() == list(range(10))


def test_names_of_columns_have_no_case(pipeline):
    pipeline.run(
        pipeline.ingest(0, 10, sort_by=["ID"], rules={"not_null": ["Id"], "unique": [["iD"]]})
    )
    other = pipeline.ingest(10, 20, select=["Amount", "id AS ID", "PART"], partition_by=["Part"])
    pipeline.run(other, {"kind": "compact", "table": "ROWS"})
    assert pipeline.ids() == list(range(20))
    assert {row[0] for row in pipeline.metadata("ducklake_column", "column_name")} == {
        "id",
        "part",
        "amount",
    }


def test_rows_of_one_partition_are_one_file(pipeline):
    """NaN equals nothing, and is a partition of its own all the same."""
    values = "CASE id % 3 WHEN 0 THEN DOUBLE('NaN') WHEN 1 THEN NULL ELSE amount * 0 END AS amount"
    step = pipeline.ingest(0, 30, select=["id", values], partition_by=["amount"])
    done = pipeline.run(step, {"kind": "verify"})
    assert done.ok
    assert done.steps[0].counts["files"] == 3
    pipeline.run(pipeline.ingest(30, 60, select=["id", values], partition_by=["amount"]))
    done = pipeline.run({"kind": "compact", "table": "rows"})
    assert (done.steps[0].counts["files_before"], done.steps[0].counts["files"]) == (6, 3)
    assert pipeline.ids() == list(range(60))


def test_a_dry_run_knows_the_tables_that_its_job_would_make(pipeline):
    pipeline.run(pipeline.ingest(0, 9))
    steps = [
        pipeline.ingest(0, 9, table="more"),
        {"kind": "compact", "table": "More"},
        {"kind": "verify", "tables": ["more", "rows"]},
    ]
    planned = pipeline.run(*steps, dry_run=True)
    assert [step.state for step in planned.steps] == ["planned", "planned", "done"]
    assert planned.steps[2].counts["rows"] == 9
    for missing in (steps[1:], [{"kind": "verify", "tables": ["more"]}]):
        with pytest.raises(PipelineError, match=r"there is no lake table main\.[mM]ore"):
            pipeline.run(*missing, dry_run=True)


def test_nested_and_rare_types_come_back_as_they_went(pipeline):
    frame = pipeline.spark.sql(
        "SELECT named_struct('a', 1, 'b', 'x') AS s, array(1.5D, NULL) AS l, map('k', 2) AS m, "
        "DATE '2024-02-29' AS d, TIMESTAMP '2024-02-29 12:00:00.5' AS t, "
        "TIMESTAMP_NTZ '2024-02-29 12:00:00.5' AS n, CAST(1.25 AS decimal(20, 4)) AS c, "
        "X'00FF' AS b, DOUBLE('NaN') AS f, true AS o, CAST(NULL AS string) AS e"
    )
    frame.write.parquet(str(pipeline.folder / "rare"))
    source = {"format": "parquet", "path": str(pipeline.folder / "rare")}
    pipeline.run(
        {"kind": "ingest", "table": "rare", "source": source, "view": "rare_" + pipeline.schema}
    )
    kinds = pipeline.metadata(
        "ducklake_column", "column_id, column_name, column_type, parent_column"
    )
    assert (2, "a", "int32", 1) in kinds
    assert (5, "element", "float64", 4) in kinds
    assert (12, "c", "decimal(20,4)", None) in kinds
    (row,) = pipeline.sql(
        f"SELECT s.b, l, m, d::VARCHAR, epoch_us(t) - epoch_us(TIMESTAMPTZ '2024-02-29 11:00:00.5+00'), "
        f"n::VARCHAR, c::VARCHAR, b, isnan(f), o, e FROM main.rare_{pipeline.schema}"
    )
    assert row == (
        *("x", [1.5, None], {"k": 2}, "2024-02-29", 0, "2024-02-29 12:00:00.5", "1.2500"),
        *(b"\x00\xff", True, True, None),
    )


def test_times_of_day_come_back_as_they_went(pipeline):
    times = [(datetime.time(23, 59, 59, 999999),), (datetime.time(0),), (None,)]
    pipeline.spark.createDataFrame(times, "t time(6)").createOrReplaceTempView("times_of_day")
    source = {"format": "table", "path": "times_of_day"}
    view = f"{pipeline.schema}.shown"
    pipeline.run({"kind": "ingest", "table": "times", "source": source, "view": view})
    assert set(pipeline.sql(f"FROM {view}")) == set(times)
    assert pipeline.metadata("ducklake_column", "column_type") == [("time",)]
    bounds = pipeline.metadata("ducklake_file_column_stats", "min(min_value), max(max_value)")
    assert bounds == [("00:00:00", "23:59:59.999999")]


def test_verify_finds_every_damage(pipeline):
    pipeline.run(pipeline.ingest(0, 90))
    removed, flipped, cut = pipeline.files()
    removed.unlink()
    data = bytearray(flipped.read_bytes())
    data[20] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-1])
    lost = removed.with_name("lost.parquet")
    lost.parent.mkdir(parents=True, exist_ok=True)
    lost.write_bytes(b"nobody knows me")
    found = pipeline.run({"kind": "verify"})
    assert not found.ok
    assert found.steps[0].counts["damaged"] == 3
    assert found.steps[0].counts["orphans"] == 1
    notes = "\n".join(found.steps[0].notes)
    assert f"missing: {removed}" in notes
    assert f"changed: {flipped}: expected sha256:" in notes
    assert f"changed: {cut}: expected" in notes
    assert f"orphan: {lost}" in notes


def test_a_driver_that_dies_before_its_commit(pipeline, spark_cluster):
    job = pipeline.job(pipeline.ingest(0, 300), job_id="dies")
    given = {"job": job.model_dump_json(), "token": spark_cluster.token}
    driver = Driver(pipeline.folder, given, "pipeline_driver.py")
    try:
        wait_for("the files", lambda: driver.has_said("written"))
    finally:
        driver.kill()
    left = pipeline.files()
    assert len(left) == 3
    assert pipeline.ids() == []
    assert pipeline.run({"kind": "verify"}).steps[0].counts["orphans"] == 0  # it may be alive

    done = quack.pipeline.run(job, spark=pipeline.spark)
    assert done.steps[0].state == "done"
    assert pipeline.ids() == list(range(300))
    assert not set(left) & set(pipeline.files())
    assert pipeline.run({"kind": "verify"}).steps[0].counts["orphans"] == 0


def test_two_runs_of_one_job_at_once(pipeline, monkeypatch):
    """The one that began later wins; the other one commits nothing and leaves nothing."""
    job = pipeline.job(pipeline.ingest(0, 30), job_id="twice")
    whole = quack.pipeline.context.commit_once

    def overtaken(*given):
        monkeypatch.setattr(quack.pipeline.context, "commit_once", whole)
        assert quack.pipeline.run(job, spark=pipeline.spark).steps[0].state == "done"
        return whole(*given)

    monkeypatch.setattr(quack.pipeline.context, "commit_once", overtaken)
    assert quack.pipeline.run(job, spark=pipeline.spark).steps[0].counts["rows"] == 30
    assert pipeline.ids() == list(range(30))
    assert len(pipeline.files()) == 3


def test_job_files_are_checked_in_full(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(
        """job_id: ${month}
lake: {location: "ftp://x"}
spark: {spark.hadoop.fs.s3a.secret.key: hidden, spark.hadoop.fs.s3a.aws.credentials.provider: x.Y}
colour: red
steps:
  - kind: ingest
    table: quack_spark.t
    source: {format: csv, path: x.csv, options: {password: hidden}}
  - kind: melt
"""
    )
    with pytest.raises(ConfigError) as raised:
        load_job(file, {"year": "2013"})
    text = str(raised.value)
    assert "hidden" not in text
    for words in (
        "job.yaml:1: job_id: variable month has no value; give --set month=...",
        "variable year is not used",
        "job.yaml:2: lake.location: Value error, 'ftp://x': expected a path or s3://bucket/prefix",
        "job.yaml:3: spark: Value error, spark.hadoop.fs.s3a.secret.key: secrets are not for job files",
        "job.yaml:4: colour: unknown key",
        "is reserved",
        "secrets are not for job files",
        "job.yaml:9: steps.1: ",
    ):
        assert words in text, words


def test_the_command(pipeline, spark_cluster, monkeypatch, capsys):
    job = pipeline.job(pipeline.ingest(0, 12), {"kind": "verify"}, job_id="x-${day}")
    document = json.loads(job.model_dump_json(exclude={"cluster"}, exclude_none=True))
    file = pipeline.folder / "job.yaml"
    file.write_text(yaml.safe_dump(document))
    config = spark_cluster.nodes[0].config_file

    def command(*words: str) -> tuple[int, str]:
        given = ["quack", "pipeline", "run", str(file), "--config", str(config), *words]
        monkeypatch.setattr("sys.argv", given)
        return quack.cli.main.main(), capsys.readouterr().out

    code, out = command("--set", "day=1", "--dry-run", "--json")
    assert code == 0, out
    assert json.loads(out)["steps"][0]["state"] == "planned"
    code, out = command("--set", "day=1")
    assert code == 0, out
    assert "12 rows" in out
    assert pipeline.ids() == list(range(12))
    pipeline.files()[0].unlink()
    code, out = command("--set", "day=1", "--json")
    assert code == 1, out
    answer = json.loads(out)
    assert [step["state"] for step in answer["steps"]] == ["already_done", "damaged"]
    monkeypatch.setenv("JAVA_HOME", str(pipeline.folder / "no-java"))
    monkeypatch.setattr(
        "sys.argv", ["quack", "pipeline", "run", str(file), "--config", str(config)]
    )
    assert quack.cli.main.main() == 1
    assert "no Java" in capsys.readouterr().err
    code, out = command("--set", "day=1", "--json")
    assert code == 1
    assert "no Java" in json.loads(out)["error"]


def test_what_cannot_be_reached_is_named(pipeline, tmp_path, monkeypatch):
    step = pipeline.ingest(0, 1)
    job = pipeline.job(step)
    monkeypatch.setenv("QUACK_WRONG_TOKEN", "wrong-token")
    wrong = job.cluster.model_copy(update={"token_env": "QUACK_WRONG_TOKEN"})
    with pytest.raises(SparkError, match="unauthorized") as raised:
        quack.pipeline.run(job.model_copy(update={"cluster": wrong}), spark=pipeline.spark)
    assert "wrong-token" not in str(raised.value)
    gone = job.cluster.model_copy(update={"url": "quack:127.0.0.1:9", "request_timeout_s": 1})
    with pytest.raises(SparkError, match="cannot attach quack:127.0.0.1:9"):
        quack.pipeline.run(job.model_copy(update={"cluster": gone}), spark=pipeline.spark)
    file = tmp_path / "file"
    file.write_text("")
    place = job.lake.model_copy(update={"location": str(file), "catalog": pipeline.schema + "x"})
    with pytest.raises(StorageError, match=f"{file}.*cannot be written"):
        quack.pipeline.run(job.model_copy(update={"lake": place}), spark=pipeline.spark)
    with pytest.raises(PipelineError, match="there is no table main.nobody"):
        pipeline.run({"kind": "tier", "source": "nobody", "table": "rows", "where": "true"})
    pipeline.sql(f"CREATE VIEW {pipeline.schema}.shown AS SELECT 1 AS id")
    view = f"{pipeline.schema}.shown"
    with pytest.raises(PipelineError, match=f"{view} is a view; rows move out of tables only"):
        pipeline.run({"kind": "tier", "source": view, "table": "rows", "where": "true"})
    with pytest.raises(PipelineError, match="there is no lake table main.rows"):
        pipeline.run({"kind": "compact", "table": "rows"})
    source = {"format": "parquet", "path": str(tmp_path / "nowhere")}
    with pytest.raises(PipelineError, match="cannot read the source.*nowhere"):
        pipeline.run({**step, "source": source})
    assert pipeline.files() == []

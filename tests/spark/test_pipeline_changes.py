"""Goal: files and rows move and merge, and no reader sees a row missing or twice."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

import quack.pipeline
from quack.errors import PipelineError

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def events(sql, table):
    """A replicated table of 3,000 rows."""
    sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, day DATE NOT NULL, note VARCHAR)")
    sql(
        f"INSERT INTO {table} SELECT i, DATE '2024-01-01' + (i // 100)::INT, "
        "CASE WHEN i % 7 = 0 THEN NULL ELSE 'note ' || i END FROM range(3000) r(i)"
    )
    return table


def tier(events: str, where: str, **more: object) -> dict[str, object]:
    step = {"kind": "tier", "source": events, "table": "cold." + events, "where": where}
    return {**step, "view": events + "_all", **more}


def test_readers_see_every_row_once_while_rows_move(pipeline, events, spark_cluster):
    pipeline.run(tier(events, "id < 100"))
    expected = (3000, sum(range(3000)))
    assert pipeline.sql(f"SELECT count(*), sum(id) FROM {events}_all") == [expected]
    seen: list[tuple[str, object]] = []
    stop = threading.Event()

    def by_view() -> None:
        session = spark_cluster.connect(consistency="linearizable")
        while not stop.is_set():
            answer = session.execute(f"SELECT count(*), sum(id) FROM cp.{events}_all")
            seen.append(("view", answer.fetchone()))
        session.close()

    def by_list() -> None:
        session = spark_cluster.connect(consistency="linearizable")
        while not stop.is_set():
            session.execute("BEGIN")
            session.execute(
                "SET VARIABLE files = (SELECT list(path) "
                f"FROM cp.{pipeline.schema}.quack_live_files WHERE table_name = '{events}')"
            )
            answer = session.execute(
                f"SELECT count(*), sum(id) FROM (SELECT id FROM cp.{events} "
                "UNION ALL SELECT id FROM read_parquet(getvariable('files')))"
            )
            seen.append(("list", answer.fetchone()))
            session.execute("COMMIT")
        session.close()

    readers = [threading.Thread(target=one) for one in (by_view, by_list)]
    for reader in readers:
        reader.start()
    try:
        for last in (1000, 2000):
            done = pipeline.run(
                tier(events, f"id < {last}"), {"kind": "verify", "checksums": False}
            )
            assert done.ok
        pipeline.run({"kind": "compact", "table": "cold." + events})
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert {how for how, _ in seen} == {"view", "list"}
    assert {answer for _, answer in seen} == {expected}
    assert pipeline.sql(f"SELECT min(id), count(*) FROM {events}") == [(2000, 1000)]
    assert len(pipeline.sql(f"FROM {pipeline.schema}.quack_live_files")) == 1
    whole = pipeline.sql(f"SELECT count(note), min(day)::VARCHAR FROM {events}_all")
    assert whole == [(2571, "2024-01-01")]


def test_a_dry_run_counts_and_checks(pipeline, events):
    planned = pipeline.run(tier(events, "id < 100"), dry_run=True).steps[0]
    assert (planned.state, planned.counts) == ("planned", {"rows": 100})
    pipeline.sql(f"ALTER TABLE {events} ADD COLUMN lasts INTERVAL")
    with pytest.raises(PipelineError, match="column lasts: type interval day to second has no"):
        pipeline.run(tier(events, "id < 100"), dry_run=True)
    with pytest.raises(PipelineError, match="column lasts: type interval day to second has no"):
        pipeline.run(tier(events, "id < 100"))
    assert pipeline.sql(f"SELECT count(*) FROM {events}") == [(3000,)]
    pipeline.sql(f"ALTER TABLE {events} DROP COLUMN lasts")
    with pytest.raises(PipelineError, match="partition_by names nobody"):
        pipeline.run(tier(events, "id < 100", partition_by=["nobody"]), dry_run=True)
    assert pipeline.files() == []


def test_rows_that_change_while_they_are_exported_are_exported_again(pipeline, events, monkeypatch):
    """One row is changed, one comes and one goes between export and cut."""
    whole = quack.pipeline.context.commit_once
    changes = [
        f"UPDATE {events} SET note = 'new' WHERE id = 5",
        f"DELETE FROM {events} WHERE id = 7",
    ]

    def changed(*given):
        if changes:
            pipeline.sql(changes.pop())
        return whole(*given)

    monkeypatch.setattr(quack.pipeline.context, "commit_once", changed)
    done = pipeline.run(tier(events, "id < 10"))
    assert done.steps[0].counts["rows"] == 9
    assert pipeline.sql(f"SELECT note FROM {events}_all WHERE id = 5") == [("new",)]
    assert pipeline.sql(f"SELECT count(*) FROM {events}_all") == [(2999,)]
    assert len(pipeline.files()) == 1

    changes += [f"INSERT INTO {events} VALUES (-{i}, '2024-01-01', NULL)" for i in (1, 2, 3)]
    with pytest.raises(PipelineError, match="changed while they were exported, 3 times"):
        pipeline.run(tier(events, "id < 20"))
    assert len(pipeline.files()) == 1
    assert pipeline.sql(f"SELECT count(*) FROM {events}_all") == [(3002,)]


def test_small_files_become_one_while_others_come(pipeline, monkeypatch):
    for first in (0, 30, 60):
        pipeline.run(pipeline.ingest(first, first + 30))
    old = pipeline.files()
    assert len(old) == 9
    whole = quack.pipeline.context.commit_once

    def meanwhile(*given):
        monkeypatch.setattr(quack.pipeline.context, "commit_once", whole)
        pipeline.run(pipeline.ingest(90, 120))
        return whole(*given)

    monkeypatch.setattr(quack.pipeline.context, "commit_once", meanwhile)
    done = pipeline.run({"kind": "compact", "table": "rows"})
    counts = done.steps[0].counts
    assert (counts["rows"], counts["files"], counts["files_before"]) == (90, 3, 9)
    assert pipeline.ids() == list(range(120))
    assert len(pipeline.sql(f"FROM {pipeline.schema}.quack_live_files")) == 6
    assert pipeline.metadata("ducklake_table_stats", "record_count") == [(120,)]

    # Old snapshots go on reading the old files, until they are expired.
    assert set(old) < set(pipeline.files())
    at_three = f"SELECT sum(record_count) FROM {pipeline.schema}.quack_files_at('rows', 3)"
    assert pipeline.sql(at_three) == [(90,)]
    kept = pipeline.run({"kind": "expire"}).steps[0].counts
    assert (kept["snapshots"], kept["files"]) == (0, 0)
    waits = pipeline.run({"kind": "expire", "older_than_s": 0}, {"kind": "verify"})
    assert waits.ok
    assert (waits.steps[0].counts["scheduled"], waits.steps[0].counts["files"]) == (9, 0)
    gone = pipeline.run({"kind": "expire", "older_than_s": 0, "grace_s": 0}, {"kind": "verify"})
    assert gone.ok
    assert (gone.steps[0].counts["files"], gone.steps[1].counts["orphans"]) == (9, 0)
    assert not set(old) & set(pipeline.files())
    assert pipeline.ids() == list(range(120))


def test_jobs_at_once_on_an_empty_catalog(pipeline):
    """They make the tables of the lake, the lake's table and their snapshots at the same time."""
    steps = [pipeline.ingest(10 * number, 10 * number + 10) for number in range(4)]
    with ThreadPoolExecutor(len(steps)) as pool:
        done = list(pool.map(pipeline.run, steps))
    assert [one.steps[0].counts["rows"] for one in done] == [10] * 4
    assert pipeline.ids() == list(range(40))
    assert pipeline.metadata("ducklake_snapshot", "snapshot_id") == [(i,) for i in range(5)]
    assert pipeline.metadata("ducklake_table", "table_name") == [("rows",)]
    assert pipeline.metadata("ducklake_table_stats", "record_count, next_row_id") == [(40, 40)]


def test_two_compactions_of_the_same_files(pipeline, monkeypatch):
    for first in (0, 10):
        pipeline.run(pipeline.ingest(first, first + 10, partition_by=[]))
    whole = quack.pipeline.context.commit_once
    step = {"kind": "compact", "table": "rows"}

    def overtaken(*given):
        monkeypatch.setattr(quack.pipeline.context, "commit_once", whole)
        pipeline.run(step)
        return whole(*given)

    monkeypatch.setattr(quack.pipeline.context, "commit_once", overtaken)
    with pytest.raises(PipelineError, match="2 of 2 files were replaced by another one"):
        pipeline.run(step)
    assert pipeline.ids() == list(range(20))
    assert len(pipeline.files()) == 3
    assert pipeline.run(step).steps[0].counts["files_before"] == 0


def test_expire_removes_what_dead_runs_and_strangers_left(pipeline, monkeypatch):
    pipeline.run(pipeline.ingest(0, 10, partition_by=[]))
    (good,) = pipeline.files()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quack.pipeline.context, "commit_once", interrupted)
    # As if the driver had died: nobody ends the run.
    monkeypatch.setattr(quack.pipeline.context.runs, "end", lambda *_: False)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(pipeline.ingest(10, 20, partition_by=[]))
    monkeypatch.undo()
    monkeypatch.setenv("QUACK_PIPELINE_TOKEN", pipeline.token)
    assert len(pipeline.files()) == 2
    assert pipeline.run({"kind": "expire"}).steps[0].counts["orphans"] == 0  # it may be alive
    assert pipeline.run({"kind": "expire", "staging_ttl_s": 0}).steps[0].counts["orphans"] == 1
    assert pipeline.files() == [good]
    assert duckdb.read_parquet(str(good)).count("*").fetchall() == [(10,)]

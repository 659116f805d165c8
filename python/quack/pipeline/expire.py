"""The step `expire`: old snapshots are forgotten, and files that nobody names are removed."""

from __future__ import annotations

import duckdb

from quack.pipeline.context import Context, StepSummary
from quack.pipeline.job import Expire
from quack.pipeline.lake import FILE_PATH, take_turn
from quack.pipeline.layout import Lake
from quack.pipeline.verify import listed, named_paths, orphans
from quack.spark.commit import commit_once
from quack.spark.ledger import rows_of

__all__ = ["run_expire"]


def run_expire(context: Context, name: str, step: Expire) -> StepSummary:
    """Forget snapshots, then remove what was scheduled long enough ago, then orphans.

    The metadata go first: a file is removed only when a committed transaction says that no
    snapshot names it. What cannot be removed stays scheduled for the next time.

    Raises:
        StorageError: the storage refuses.
        SparkError: the cluster refuses.

    """
    counts = {"snapshots": 0, "scheduled": 0, "files": 0, "bytes": 0, "orphans": 0}
    lake = context.lake

    def body(session: duckdb.DuckDBPyConnection) -> None:
        counts["snapshots"], counts["scheduled"] = _forget(session, lake, step)

    if context.dry_run:
        with context.session("read the snapshots") as session:
            counts["snapshots"] = len(_old_snapshots(session, lake, step.older_than_s))
        return StepSummary(name, step.kind, "planned", counts)
    # Not known by an id: doing it twice is doing it once.
    commit_once(context.options, f"cannot commit step {name}", lambda _: False, body)
    _remove_scheduled(context, step, counts)
    # Listed before the metadata are read: what is written meanwhile is not in the list.
    present = listed(context.store)
    for path in orphans(present, named_paths(context)):
        context.store.delete(path)
        counts["orphans"] += 1
        counts["bytes"] += present[path]
    return StepSummary(name, step.kind, counts=counts)


def _age(seconds: float) -> str:
    return f"now() - to_microseconds({int(seconds * 1e6)})"


def _old_snapshots(
    session: duckdb.DuckDBPyConnection, lake: Lake, older_than_s: float
) -> list[int]:
    rows = rows_of(
        session,
        f"SELECT snapshot_id FROM {lake.sql('snapshot')} WHERE snapshot_time < "
        f"{_age(older_than_s)} AND snapshot_id < (SELECT max(snapshot_id) "
        f"FROM {lake.sql('snapshot')}) ORDER BY 1",
    )
    return [row[0] for row in rows]


def _forget(session: duckdb.DuckDBPyConnection, lake: Lake, step: Expire) -> tuple[int, int]:
    """Remove snapshots and schedule the files that only they named, in the open transaction."""
    take_turn(session, lake)
    # A run that began long ago is dead; without its row it cannot commit.
    rows_of(
        session,
        f"DELETE FROM {lake.sql('quack_run')} WHERE started_at < {_age(step.staging_ttl_s)}",
    )
    old = _old_snapshots(session, lake, step.older_than_s)
    if not old:
        return 0, 0
    numbers = ", ".join(str(number) for number in old)
    for table in ("snapshot", "snapshot_changes"):
        rows_of(session, f"DELETE FROM {lake.sql(table)} WHERE snapshot_id IN ({numbers})")
    unnamed = (
        "end_snapshot IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "
        f"{lake.sql('snapshot')} s WHERE s.snapshot_id >= f.begin_snapshot "
        "AND s.snapshot_id < f.end_snapshot)"
    )
    dead = rows_of(session, f"SELECT data_file_id FROM {lake.sql('data_file')} f WHERE {unnamed}")
    if not dead:
        return len(old), 0
    listed_ids = ", ".join(str(row[0]) for row in dead)
    rows_of(
        session,
        f"INSERT INTO {lake.sql('files_scheduled_for_deletion')} SELECT f.data_file_id, "
        f"{FILE_PATH}, f.path_is_relative, now() FROM {lake.sql('data_file')} f "
        f"JOIN {lake.sql('table')} t ON t.table_id = f.table_id "
        f"JOIN {lake.sql('schema')} s ON s.schema_id = t.schema_id "
        f"WHERE f.data_file_id IN ({listed_ids})",
    )
    for table in ("data_file", "file_column_stats", "file_partition_value", "quack_file"):
        rows_of(session, f"DELETE FROM {lake.sql(table)} WHERE data_file_id IN ({listed_ids})")
    return len(old), len(dead)


def _remove_scheduled(context: Context, step: Expire, counts: dict[str, int]) -> None:
    lake = context.lake
    with context.session("read what is scheduled for removal") as session:
        due = rows_of(
            session,
            f"SELECT data_file_id, path FROM {lake.sql('files_scheduled_for_deletion')} "
            f"WHERE schedule_start <= {_age(step.grace_s)} AND path_is_relative",
        )
    if not due:
        return
    present = listed(context.store)
    for _, path in due:
        context.store.delete(path)
        counts["files"] += 1
        counts["bytes"] += present.get(path, 0)
    with context.session("note what was removed") as session:
        numbers = ", ".join(str(number) for number, _ in due)
        rows_of(
            session,
            f"DELETE FROM {lake.sql('files_scheduled_for_deletion')} "
            f"WHERE data_file_id IN ({numbers})",
        )

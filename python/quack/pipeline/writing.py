"""Writes the rows of a DataFrame as files of a lake table, in Spark's tasks."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quack.errors import PipelineError
from quack.pipeline import runs
from quack.pipeline.columns import Column
from quack.pipeline.context import Context
from quack.pipeline.files import FilePlan, FileWriter
from quack.pipeline.job import Ingest, LakePlace, Tier
from quack.pipeline.lake import WrittenFile
from quack.pipeline.rules import CORRUPT, PROBLEMS, spark_name
from quack.pipeline.tasks import collect, watched
from quack.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SUMMED", "Counted", "Written", "count_frame", "write_frame"]

#: Column whose values are added up and not written.
SUMMED = "__quack_summed"
_EXAMPLES_MAX = 3


@dataclass(frozen=True)
class Counted:
    """What rules say of rows.

    Attributes:
        good_rows: how many rows broke none.
        bad_rows: how many broke any.
        broken: how many rows broke each rule.
        examples: some of them, in words.

    """

    good_rows: int
    bad_rows: int
    broken: Counter[str]
    examples: list[str]


@dataclass(frozen=True)
class Written:
    """What the tasks of one job wrote.

    Attributes:
        files: of good rows.
        rejected: paths of the files of bad rows, from the lake's location on.
        counted: the rows.
        summed: sum of the values of column `SUMMED`.

    """

    files: list[WrittenFile]
    rejected: set[str]
    counted: Counted
    summed: int


def count_frame(context: Context, frame: DataFrame, what: str) -> Counted:
    """Count good and bad rows; writes nothing.

    Args:
        context: of the job.
        frame: the rows, with column `PROBLEMS`.
        what: for the message.

    Raises:
        PipelineError: a task failed, every time it was tried.

    """
    return _counted(_answers(context, frame, _count, f"{what}: cannot read the source"))


def _answers(context: Context, frame: DataFrame, task: Any, doing: str) -> list[dict[str, Any]]:
    with watched(context.start_spark(), context.watcher):
        rows = collect(frame.mapInArrow(task, "answer string"), doing)
    return [json.loads(row.answer) for row in rows]


def _counted(answers: list[dict[str, Any]]) -> Counted:
    broken: Counter[str] = Counter()
    for answer in answers:
        broken.update(answer["broken"])
    return Counted(
        sum(answer["good_rows"] for answer in answers),
        sum(answer["bad_rows"] for answer in answers),
        broken,
        [one for answer in answers for one in answer["examples"]][:_EXAMPLES_MAX],
    )


def write_frame(
    context: Context,
    frame: DataFrame,
    columns: Sequence[Column],
    partition_by: Sequence[str],
    folder: str,
    run: runs.Run,
    step: Ingest | Tier,
    what: str,
) -> Written:
    """Write the rows as files of a run.

    Args:
        context: of the job.
        frame: the rows, with column `PROBLEMS`, perhaps also `SUMMED`.
        columns: of the table.
        partition_by: of the table.
        folder: of the table.
        run: names the folder below it.
        step: has sort_by and target_file_bytes.
        what: for the message.

    Raises:
        PipelineError: a task failed, every time it was tried.

    """
    order = [*partition_by, *step.sort_by]
    missing = sorted({one.lower() for one in step.sort_by} - {one.name.lower() for one in columns})
    if missing:
        raise PipelineError(f"{what}: sort_by names {', '.join(missing)}, which is not there")
    if partition_by:
        frame = frame.repartition(*(spark_name(one) for one in partition_by))
    if order:
        frame = frame.sortWithinPartitions(*(spark_name(one) for one in order))
    plan = FilePlan(folder, run.run_id, tuple(columns), tuple(partition_by), step.target_file_bytes)
    task = _WriteTask(context.job.lake, plan)
    answers = _answers(context, frame, task, f"{what}: cannot write its files")
    files = [WrittenFile.from_json(one) for answer in answers for one in answer["files"]]
    return Written(
        sorted(files, key=lambda file: file.path),
        {path for answer in answers for path in answer["rejected"]},
        _counted(answers),
        sum(answer["summed"] for answer in answers),
    )


def _split(batch: pa.RecordBatch) -> tuple[pa.Table, pa.Table]:
    """Return the good and the bad rows."""
    rows = pa.Table.from_batches([batch])
    is_good = pc.is_null(rows[PROBLEMS])
    return rows.filter(is_good), rows.filter(pc.invert(is_good))


def _answer(**parts: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": [json.dumps(parts)]})


def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    bad = _BadRows()
    good_rows = 0
    for batch in batches:
        good, others = _split(batch)
        good_rows += good.num_rows
        bad.count(others)
    yield _answer(good_rows=good_rows, **bad.counts())


@dataclass(frozen=True)
class _WriteTask:
    """Writes the rows of one Spark partition; gives one row of JSON back."""

    place: LakePlace
    plan: FilePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = self.place.store()
        good = FileWriter(store, self.plan)
        bad = _BadRows()
        good_rows = summed = 0
        for batch in batches:
            rows, others = _split(batch)
            if SUMMED in rows.column_names:
                # 63-bit values: their sum needs more than 64 bits.
                summed += int(pc.sum(rows[SUMMED].cast(pa.decimal128(38, 0))).as_py() or 0)
            good_rows += rows.num_rows
            good.write(rows)
            bad.keep(others)
        rejected = bad.write(store, f"{runs.REJECTED}{self.plan.folder}{self.plan.run_folder}")
        files = [file.to_json() for file in good.close()]
        yield _answer(
            good_rows=good_rows, files=files, rejected=rejected, summed=summed, **bad.counts()
        )


class _BadRows:
    """Counts the rows that break rules, and keeps them for a folder of their own."""

    def __init__(self) -> None:
        self._count = 0
        self._broken: Counter[str] = Counter()
        self._examples: list[str] = []
        self._kept: list[pa.Table] = []

    def count(self, rows: pa.Table) -> None:
        """Take in bad rows."""
        self._count += rows.num_rows
        for row in rows.select([PROBLEMS]).to_pylist():
            self._broken.update(row[PROBLEMS])
        for row in rows.slice(0, _EXAMPLES_MAX - len(self._examples)).to_pylist():
            problems = ", ".join(row.pop(PROBLEMS))
            self._examples.append(f"({problems}) {_shown(row)}")

    def keep(self, rows: pa.Table) -> None:
        """Take in bad rows that `write` will write."""
        if rows.num_rows:
            self.count(rows)
            self._kept.append(rows)

    def counts(self) -> dict[str, Any]:
        """Return what `_counted` needs."""
        return {"bad_rows": self._count, "broken": self._broken, "examples": self._examples}

    def write(self, store: Store, folder: str) -> list[str]:
        """Write them; returns the paths."""
        if not self._kept:
            return []
        sink = pa.BufferOutputStream()
        pq.write_table(pa.concat_tables(self._kept), sink, compression="zstd")
        path = f"{folder}/{uuid.uuid4().hex}.parquet"
        store.put(path, bytes(sink.getvalue()))
        return [path]


def _shown(row: dict[str, Any]) -> str:
    text = row.get(CORRUPT)
    shown = repr(text) if text is not None else str({k: v for k, v in row.items() if k != CORRUPT})
    return shown if len(shown) <= 200 else shown[:200] + "..."

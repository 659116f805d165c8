"""The rows of one read, staged by the driver for the tasks: one snapshot, whatever the tasks do."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from quack.errors import SparkError

__all__ = ["SnapshotPartition", "StagedSnapshot", "read_partition", "sweep"]

_PREFIX = "quack-spark-read-"


class SnapshotPartition(InputPartition):
    """What one task reads: rows that travel inside it, or a file that the driver staged.

    Attributes:
        number: of the partition, from 0.
        rows: how many rows it has.
        payload: Arrow IPC stream; None when they lie in ``file``.
        file: where they lie; None when they are in ``payload`` or there are none.
        host: where the file was written, for messages.

    """

    def __init__(
        self, number: int, rows: int, payload: bytes | None, file: str | None, host: str
    ) -> None:
        super().__init__(number)
        self.number = number
        self.rows = rows
        self.payload = payload
        self.file = file
        self.host = host

    def __repr__(self) -> str:
        return f"SnapshotPartition({self.number}, rows={self.rows}, file={self.file})"


class StagedSnapshot:
    """Takes the batches of a result, in memory while they are few, then in files.

    Args:
        schema: of every batch.
        partitions: how many parts to make.
        folder: where a folder for the files is made when they are needed.
        inline_bytes_max: beyond it the files are needed.

    """

    def __init__(
        self, schema: pa.Schema, partitions: int, folder: pathlib.Path, inline_bytes_max: int
    ) -> None:
        self._schema = schema
        self._kept: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
        self._rows = [0] * partitions
        self._bytes = 0
        self._bytes_max = inline_bytes_max
        self._parent = folder
        self._folder: pathlib.Path | None = None
        self._writers: list[pa.ipc.RecordBatchStreamWriter | None] = [None] * partitions

    def add(self, number: int, batch: pa.RecordBatch) -> None:
        """Append a batch to a part.

        Raises:
            SparkError: the folder cannot be written or is full; names it.

        """
        if batch.num_rows == 0:
            return
        self._rows[number] += batch.num_rows
        self._bytes += batch.nbytes
        if self._folder is None and self._bytes <= self._bytes_max:
            self._kept[number].append(batch)
            return
        try:
            if self._folder is None:
                self._spill()
            self._write(number, batch)
        except OSError as error:
            raise self._failure(error) from None

    def _spill(self) -> None:
        folder = self._parent / f"{_PREFIX}{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        self._folder = folder
        for number, batches in enumerate(self._kept):
            for batch in batches:
                self._write(number, batch)
        self._kept = []

    def _path(self, number: int) -> pathlib.Path:
        assert self._folder is not None
        return self._folder / f"part-{number:05d}.arrow"

    def _write(self, number: int, batch: pa.RecordBatch) -> None:
        writer = self._writers[number]
        if writer is None:
            writer = pa.ipc.new_stream(str(self._path(number)), self._schema)
            self._writers[number] = writer
        writer.write_batch(batch)

    def _failure(self, error: OSError) -> SparkError:
        return SparkError(
            f"cannot stage the rows of the read in {self._folder or self._parent}: "
            f"{error.strerror or error}; give staging_dir a folder with space that driver and "
            "executors share and may write"
        )

    def finish(self) -> list[SnapshotPartition]:
        """Close the files; returns the parts in order.

        Raises:
            SparkError: as `add`.

        """
        host = socket.gethostname()
        if self._folder is None:
            return [
                SnapshotPartition(number, self._rows[number], self._payload(batches), None, host)
                for number, batches in enumerate(self._kept)
            ]
        try:
            for writer in self._writers:
                if writer is not None:
                    writer.close()
        except OSError as error:
            raise self._failure(error) from None
        return [
            SnapshotPartition(
                number,
                rows,
                None,
                str(self._path(number)) if rows else None,
                host,
            )
            for number, rows in enumerate(self._rows)
        ]

    def _payload(self, batches: list[pa.RecordBatch]) -> bytes | None:
        if not batches:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    def discard(self) -> None:
        """Remove the files of a read that failed."""
        for writer in self._writers:
            with contextlib.suppress(OSError, pa.ArrowInvalid):
                if writer is not None:
                    writer.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def read_partition(part: SnapshotPartition) -> Iterator[pa.RecordBatch]:
    """Give the batches of one part.

    Raises:
        SparkError: the file is not there, because the snapshot expired or is on another host.

    """
    if part.rows == 0:
        return
    if part.payload is not None:
        with pa.ipc.open_stream(part.payload) as reader:
            yield from reader
        return
    assert part.file is not None
    try:
        source = pa.memory_map(part.file)
        os.utime(pathlib.Path(part.file).parent)
    except FileNotFoundError:
        raise SparkError(
            f"snapshot expired or out of reach: {part.file}, staged on {part.host}, is not on "
            f"{socket.gethostname()}. Make the DataFrame anew by load(); when driver "
            "and executors are different machines, give staging_dir a folder that they share; "
            "raise snapshot_ttl_s for DataFrames that rest longer than that between uses"
        ) from None
    except OSError as error:
        raise SparkError(f"cannot read {part.file}: {error.strerror or error}") from None
    with source, pa.ipc.open_stream(source) as reader:
        yield from reader


def sweep(folder: pathlib.Path, ttl_s: float) -> int:
    """Remove snapshots that no task has read for so many seconds; returns how many."""
    removed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if (
                    entry.name.startswith(_PREFIX)
                    and entry.is_dir(follow_symlinks=False)
                    and entry.stat().st_uid == os.getuid()
                    and time.time() - entry.stat().st_mtime > ttl_s
                ):
                    shutil.rmtree(entry.path)
                    removed += 1
    return removed

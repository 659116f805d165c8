"""The rows of one read, staged by the driver for the tasks: one snapshot, whatever the tasks do."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from quack.errors import SparkError

__all__ = ["SnapshotPartition", "StagedSnapshot", "read_partition", "sweep"]

_PREFIX = "quack-spark-read-"


class SnapshotPartition(InputPartition):
    """What one task reads: rows that travel inside it, or files that the driver staged.

    Attributes:
        number: of the partition, from 0.
        rows: how many rows it has.
        payload: Arrow IPC stream; None when they lie in ``files``.
        files: where they lie, in order; empty when they are in ``payload`` or there are none.
        host: where the files were written, for messages.

    """

    def __init__(
        self, number: int, rows: int, payload: bytes | None, files: tuple[str, ...], host: str
    ) -> None:
        super().__init__(number)
        self.number = number
        self.rows = rows
        self.payload = payload
        self.files = files
        self.host = host

    def __repr__(self) -> str:
        return f"SnapshotPartition({self.number}, rows={self.rows}, files={self.files})"


class _Chunk:
    """Rows that stay together: in memory, or a file."""

    def __init__(self) -> None:
        self.rows = 0
        self.batches: list[pa.RecordBatch] = []
        self.writer: pa.ipc.RecordBatchStreamWriter | None = None


class StagedSnapshot:
    """Takes the batches of a result in chunks, in memory while they are few, then in files.

    Args:
        schema: of every batch.
        folder: where a folder for the files is made when they are needed.
        inline_bytes_max: beyond it the files are needed.

    """

    def __init__(self, schema: pa.Schema, folder: pathlib.Path, inline_bytes_max: int) -> None:
        self._schema = schema
        self._chunks: list[_Chunk] = []
        self._bytes = 0
        self._bytes_max = inline_bytes_max
        self._parent = folder
        self._folder: pathlib.Path | None = None

    def add(self, number: int, batch: pa.RecordBatch) -> None:
        """Append a batch to a chunk.

        Raises:
            SparkError: the folder cannot be written or is full; names it.

        """
        while len(self._chunks) <= number:
            self._chunks.append(_Chunk())
        if batch.num_rows == 0:
            return
        chunk = self._chunks[number]
        chunk.rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._folder is None and self._bytes <= self._bytes_max:
            chunk.batches.append(batch)
            return
        try:
            if self._folder is None:
                self._spill()
            self._write(number, batch)
        except OSError as error:
            raise self._failure(error) from None

    def seal(self, number: int) -> None:
        """Say that a chunk gets no more batches: of many chunks only few files are open.

        Raises:
            SparkError: as `add`.

        """
        chunk = self._chunks[number]
        writer, chunk.writer = chunk.writer, None
        if writer is not None:
            try:
                writer.close()
            except OSError as error:
                raise self._failure(error) from None

    def _spill(self) -> None:
        folder = self._parent / f"{_PREFIX}{uuid.uuid4().hex}"
        folder.mkdir(mode=0o700)
        self._folder = folder
        for number, chunk in enumerate(self._chunks):
            batches, chunk.batches = chunk.batches, []
            for batch in batches:
                self._write(number, batch)

    def _path(self, number: int) -> pathlib.Path:
        assert self._folder is not None
        return self._folder / f"part-{number:05d}.arrow"

    def _write(self, number: int, batch: pa.RecordBatch) -> None:
        chunk = self._chunks[number]
        if chunk.writer is None:
            chunk.writer = pa.ipc.new_stream(str(self._path(number)), self._schema)
        chunk.writer.write_batch(batch)

    def _failure(self, error: OSError) -> SparkError:
        return SparkError(
            f"cannot stage the rows of the read in {self._folder or self._parent}: "
            f"{error.strerror or error}; give staging_dir a folder with space that driver and "
            "executors share and may write"
        )

    def finish(self, parts: Sequence[Sequence[int]]) -> list[SnapshotPartition]:
        """Close the files.

        Args:
            parts: the numbers of the chunks of each partition; numbers never added are empty.

        Raises:
            SparkError: as `add`.

        """
        for number in range(len(self._chunks)):
            self.seal(number)
        host = socket.gethostname()
        return [self._partition(number, chunks, host) for number, chunks in enumerate(parts)]

    def _partition(self, number: int, chunks: Sequence[int], host: str) -> SnapshotPartition:
        filled = [one for one in chunks if one < len(self._chunks) and self._chunks[one].rows]
        files = tuple(str(self._path(one)) for one in filled) if self._folder is not None else ()
        batches = [batch for one in filled for batch in self._chunks[one].batches]
        rows = sum(self._chunks[one].rows for one in filled)
        return SnapshotPartition(number, rows, self._payload(batches), files, host)

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
        for chunk in self._chunks:
            with contextlib.suppress(OSError, pa.ArrowInvalid):
                if chunk.writer is not None:
                    chunk.writer.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def read_partition(part: SnapshotPartition) -> Iterator[pa.RecordBatch]:
    """Give the batches of one part.

    Raises:
        SparkError: a file is not there, because the snapshot expired or is on another host.

    """
    if part.payload is not None:
        with pa.ipc.open_stream(part.payload) as reader:
            yield from reader
    for file in part.files:
        yield from _read_file(file, part.host)


def _read_file(file: str, host: str) -> Iterator[pa.RecordBatch]:
    try:
        source = pa.memory_map(file)
        os.utime(pathlib.Path(file).parent)
    except FileNotFoundError:
        raise SparkError(
            f"snapshot expired or out of reach: {file}, staged on {host}, is not on "
            f"{socket.gethostname()}. Make the DataFrame anew by load(); when driver "
            "and executors are different machines, give staging_dir a folder that they share; "
            "raise snapshot_ttl_s for DataFrames that rest longer than that between uses"
        ) from None
    except OSError as error:
        raise SparkError(f"cannot read {file}: {error.strerror or error}") from None
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

"""Reads sqllogictest files and runs them through a DuckDB session.

Records: ``statement ok``, ``statement error`` (then ``----`` and a part of the message), ``query <types> [rowsort]``
(then ``----`` and the rows, tab-separated), ``connection <name>`` before a record to run it in another session, and
``skipif <mode> <reason>`` before a record. A skip without a reason is an error.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb

MODES = ("local", "remote")


class FormatError(Exception):
    """The test file itself is wrong."""


class Mismatch(AssertionError):
    """A record did not do what the file says."""


@dataclass
class Record:
    """One statement or query of a file."""

    line: int
    kind: str
    sql: str
    expected: list[str] = field(default_factory=list)
    rowsort: bool = False
    connection: str = "default"
    skipped_in: dict[str, str] = field(default_factory=dict)


def parse(path: pathlib.Path) -> list[Record]:
    """Split a file into records.

    Raises:
        FormatError: names the line.

    """
    records: list[Record] = []
    connection = "default"
    skips: dict[str, str] = {}
    lines = path.read_text().splitlines()
    index = 0
    while index < len(lines):
        line = lines[index].strip()
        words = line.split()
        if not words or line.startswith("#"):
            index += 1
            continue
        if words[0] == "skipif":
            if len(words) < 3 or words[1] not in MODES:
                raise FormatError(f"{path}:{index + 1}: skipif <local|remote> <reason> expected")
            skips[words[1]] = " ".join(words[2:])
            index += 1
            continue
        if words[0] == "connection":
            connection = words[1]
            index += 1
            continue
        record, index = _parse_record(path, lines, index)
        record.connection = connection
        record.skipped_in = skips
        connection, skips = "default", {}
        records.append(record)
    return records


def _parse_record(path: pathlib.Path, lines: list[str], index: int) -> tuple[Record, int]:
    words = lines[index].split()
    if words[0] == "statement" and len(words) > 1 and words[1] in ("ok", "error"):
        record = Record(index + 1, words[1], "")
    elif words[0] == "query" and len(words) > 1:
        record = Record(index + 1, "query", "", rowsort="rowsort" in words[2:])
    else:
        raise FormatError(f"{path}:{index + 1}: unknown record '{lines[index]}'")
    index += 1
    sql: list[str] = []
    while index < len(lines) and lines[index].strip() and lines[index].strip() != "----":
        sql.append(lines[index])
        index += 1
    record.sql = "\n".join(sql)
    if index < len(lines) and lines[index].strip() == "----":
        index += 1
        while index < len(lines) and lines[index].strip():
            record.expected.append(lines[index])
            index += 1
    if record.kind == "error" and not record.expected:
        raise FormatError(f"{path}:{record.line}: an error needs a part of its message after ----")
    return record, index


def render(value: object) -> str:
    """Print one value as the files have it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value == "":
        return "(empty)"
    return str(value)


def run(path: pathlib.Path, mode: str, connect: Callable[[], duckdb.DuckDBPyConnection]) -> int:
    """Run every record of a file; returns how many ran.

    Raises:
        Mismatch: names file, line, what was expected and what came.

    """
    sessions: dict[str, duckdb.DuckDBPyConnection] = {}
    done = 0
    try:
        for record in parse(path):
            if mode in record.skipped_in:
                continue
            if record.connection not in sessions:
                sessions[record.connection] = connect()
            _run_record(path, mode, sessions[record.connection], record)
            done += 1
    finally:
        for session in sessions.values():
            session.close()
    return done


def _run_record(
    path: pathlib.Path, mode: str, session: duckdb.DuckDBPyConnection, record: Record
) -> None:
    where = f"{path}:{record.line} ({mode}): {record.sql}"
    try:
        rows = session.execute(record.sql).fetchall()
    except duckdb.Error as error:
        if record.kind == "error":
            wanted = "\n".join(record.expected)
            if wanted not in str(error):
                raise Mismatch(f"{where}\nexpected error with: {wanted}\ngot: {error}") from error
            return
        raise Mismatch(f"{where}\nfailed: {error}") from error
    if record.kind == "error":
        raise Mismatch(f"{where}\nexpected an error with: {record.expected}\ngot rows: {rows[:5]}")
    if record.kind == "query":
        got = ["\t".join(render(value) for value in row) for row in rows]
        wanted_rows = record.expected
        if record.rowsort:
            got, wanted_rows = sorted(got), sorted(wanted_rows)
        if got != wanted_rows:
            shown = "\n".join(got)
            raise Mismatch(f"{where}\nexpected:\n" + "\n".join(wanted_rows) + f"\ngot:\n{shown}")

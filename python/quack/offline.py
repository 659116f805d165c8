"""Reads the files of a node that may be stopped or broken. Nothing here changes a file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import pathlib
from typing import Any

import duckdb

from quack.errors import ClusterError, code_of
from quack.extension import connect

__all__ = ["inspect_node", "lock_owner", "log_groups", "log_records", "log_summary"]


_ATTEMPTS_MAX = 5


def lock_owner(data_dir: pathlib.Path) -> int | None:
    """Return the pid of the node that runs on the directory; 0 = unknown pid, None = no node."""
    try:
        with (data_dir / "LOCK").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                with contextlib.suppress(ValueError):
                    return int(file.read().strip() or b"0")
                return 0
    except OSError:
        return None
    return None


def _rows(function: str, path: pathlib.Path) -> list[dict[str, Any]]:
    session = connect()
    try:
        found = session.execute(f"FROM {function}(?)", [str(path)])
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.Error as error:
        raise ClusterError(str(error)) from error
    finally:
        session.close()


def _log_directory(directory: pathlib.Path) -> pathlib.Path:
    inner = directory / "log"
    return inner if inner.is_dir() else directory


def log_records(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Return every record of a log, damaged ones too.

    Args:
        directory: a data_dir or the log directory in it.

    Returns:
        One dictionary per record: file, offset, size, type, group, term, index, is_sound,
        is_acknowledged and, in words, detail.

    Raises:
        ClusterError: there is no log, or it cannot be read.

    """
    return _rows("quack_log_records", _log_directory(directory))


def log_summary(directory: pathlib.Path) -> dict[str, Any]:
    """Return counts of a log and its first damage; ``ok`` tells whether a node would open it.

    Raises:
        ClusterError: there is no log, or it cannot be read.

    """
    folder = _log_directory(directory)
    for _ in range(_ATTEMPTS_MAX):
        (row,) = _rows("quack_log_summary", folder)
        # A node that writes while its last segment is read makes the end look torn in two.
        if row["damages"] == 0 or lock_owner(folder.parent) is None:
            break
    return {"ok": row["damages"] == 0, "directory": str(folder), **row}


def log_groups(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Return term, vote and bounds of every group, as the records before the first damage say."""
    return _rows("quack_log_groups", _log_directory(directory))


def _identity(file: pathlib.Path, problems: list[str]) -> dict[str, Any] | None:
    if not file.exists():
        problems.append(f"{file} is missing: no node has started in this directory")
        return None
    try:
        identity = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        problems.append(f"{file} cannot be read: {error}")
        return None
    if not isinstance(identity, dict):
        problems.append(f"{file}: expected a JSON object")
        return None
    return identity


def _log(directory: pathlib.Path, formed: bool, problems: list[str]) -> dict[str, Any] | None:
    try:
        summary = log_summary(directory)
    except ClusterError as error:
        if code_of(error) != "not_found" or formed:
            problems.append(f"log: {error}")
        return None
    if not summary["ok"]:
        problems.append(f"log: {summary['first_damage']}")
    return {**summary, "groups": log_groups(directory)}


def _catalog(file: pathlib.Path, in_use: bool, problems: list[str]) -> dict[str, Any] | None:
    if not file.exists():
        return None
    report: dict[str, Any] = {"file": str(file), "bytes": file.stat().st_size, "applied": []}
    if in_use:
        return report  # DuckDB opens a file for one process alone
    try:
        rows = _rows("quack_catalog_file", file)
    except ClusterError as error:
        problems.append(f"catalog: {error}")
        return report
    for row in rows:
        report["cluster_id"] = row.pop("cluster_id")
        report["format"] = row.pop("format")
        if row["group"] is not None:
            report["applied"].append(row)
    return report


def _check_together(
    log: dict[str, Any] | None, catalog: dict[str, Any] | None, in_use: bool, problems: list[str]
) -> None:
    if log is None or in_use or not log["ok"]:
        return
    applied = {row["group"]: row["applied_index"] for row in catalog["applied"]} if catalog else {}
    for group in log["groups"]:
        position = applied.get(group["group"], 0)
        if group["snapshot_index"] > position:
            problems.append(
                f"group {group['group']}: the log begins after index {group['snapshot_index']}, "
                f"the catalog stands at {position}; the node gets the state from a peer at start"
            )


def inspect_node(data_dir: pathlib.Path) -> dict[str, Any]:
    """Tell what a data_dir holds and whether a node would start with it as it is.

    Returns:
        ``ok``, ``data_dir``, ``in_use_by`` (pid or None), ``identity``, ``log``, ``catalog``,
        ``incoming`` and ``quarantine`` (names), ``problems`` (in words).

    Raises:
        ClusterError: there is no such directory.

    """
    if not data_dir.is_dir():
        raise ClusterError(f"{data_dir}: no such directory")
    problems: list[str] = []
    owner = lock_owner(data_dir)
    in_use = owner is not None
    identity = _identity(data_dir / "identity.json", problems)
    log = _log(data_dir / "log", bool(identity and identity.get("formed")), problems)
    catalog = _catalog(data_dir / "catalog" / "cp.duckdb", in_use, problems)
    _check_together(log, catalog, in_use, problems)

    def names(part: str) -> list[str]:
        folder = data_dir / part
        return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []

    return {
        "ok": not problems,
        "data_dir": str(data_dir),
        "in_use_by": owner,
        "identity": identity,
        "log": log,
        "catalog": catalog,
        "incoming": names("incoming"),
        "quarantine": names("quarantine"),
        "problems": problems,
    }

"""Backups at intervals: the leader makes them, and removes those that are too old."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb

from quack.backup.create import create_backup
from quack.backup.manifest import MANIFEST
from quack.config import BackupSchedule
from quack.errors import ClusterError, QuackError, StorageError
from quack.storage import Store, open_store

__all__ = ["Scheduler", "complete_backups"]

_NAME = "%Y%m%dT%H%M%SZ"
_NAME_FORM = re.compile(r"\d{8}T\d{6}Z")
_LOOK_S = 1.0
#: A backup that failed is tried again after so long, if the interval is not shorter.
_RETRY_S = 60.0
#: A stopping node waits so long for the thread.
_STOP_S = 5.0

#: Gets the name of an event and its fields.
Say = Callable[..., None]


class _Stopped(QuackError):
    """The node stops in the middle of a backup."""


class _OwnNode:
    """Calls functions of the node in this very process."""

    def __init__(self, session: duckdb.DuckDBPyConnection) -> None:
        self._session = session

    def rows(self, function: str, *arguments: str | None) -> list[dict[str, Any]]:
        """Return what a table function answers."""
        places = ", ".join("?" for _ in arguments)
        try:
            found = self._session.execute(f"SELECT * FROM {function}({places})", list(arguments))
            names = [column[0] for column in found.description or []]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        except duckdb.Error as error:
            raise ClusterError(str(error)) from error


def _split(store: Store) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names of complete backups, oldest first, and all files by backup."""
    files: dict[str, list[str]] = {}
    try:
        names = list(store.sizes())
    except StorageError as error:
        if error.code != "not_found":
            raise
        names = []
    for name in names:
        backup, _, file = name.partition("/")
        if file and _NAME_FORM.fullmatch(backup):
            files.setdefault(backup, []).append(file)
    return sorted(name for name, own in files.items() if MANIFEST in own), files


def complete_backups(store: Store) -> list[str]:
    """Return the names of the finished backups below a scheduled place, oldest first.

    Raises:
        StorageError: it cannot be listed.

    """
    return _split(store)[0]


class Scheduler:
    """Makes backups while this node leads, in ``<to>/<cluster>/<UTC>/``, on a thread."""

    def __init__(
        self,
        session: duckdb.DuckDBPyConnection,
        schedule: BackupSchedule,
        cluster_id: str,
        say: Say,
    ) -> None:
        """Prepare it; `start` begins.

        Args:
            session: of the node's process, for this thread alone.
            schedule: from the node's file.
            cluster_id: names the level below ``to``, so that clusters may share a place.
            say: told of every backup made or failed, and of those removed.

        """
        self._session = session
        self._node = _OwnNode(session)
        self._schedule = schedule
        self._cluster_id = cluster_id
        self._say = say
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backups", daemon=True)
        self._was_leader = False
        #: Of the monotonic clock; None = the place has to be looked at first.
        self._due: float | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Give up a backup under way.

        A request to a server that does not answer is not waited for: what it leaves has no manifest
        and is removed by the next leader.
        """
        self._stopped.set()
        deadline = time.monotonic() + _STOP_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._session.interrupt()
            self._thread.join(0.2)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            try:
                if self._leads():
                    self._round()
            except _Stopped:
                return
            except Exception as error:
                if self._stopped.is_set():
                    return
                self._due = time.monotonic() + min(_RETRY_S, self._schedule.interval_ms / 1000)
                self._say("backup_failed", to=self._schedule.to, reason=str(error))

    def _leads(self) -> bool:
        rows = self._node.rows("quack_raft_status")
        leads = any(row["is_leader"] for row in rows if row["group"] == "root")
        if leads and not self._was_leader:
            self._due = None
        self._was_leader = leads
        return leads

    def _round(self) -> None:
        if self._due is not None and time.monotonic() < self._due:
            return
        store = open_store(self._schedule.to).below(self._cluster_id)
        interval_s = self._schedule.interval_ms / 1000
        if self._due is None:
            made = complete_backups(store)
            if made:
                newest = datetime.strptime(made[-1], _NAME).replace(tzinfo=UTC)
                age_s = max(0.0, (datetime.now(UTC) - newest).total_seconds())
                if age_s < interval_s:  # another leader made it
                    self._due = time.monotonic() + interval_s - age_s
                    return
        begun = time.monotonic()
        name = datetime.now(UTC).strftime(_NAME)
        place = store.below(name)
        manifest = create_backup(self._node, place, progress=self._check_stop)
        self._due = begun + interval_s
        self._say(
            "backup_created",
            location=place.location,
            index=manifest.index,
            bytes=manifest.packed_bytes(),
            seconds=round(time.monotonic() - begun, 2),
        )
        self._remove_old(store)

    def _check_stop(self, done: int, total: int) -> None:
        if self._stopped.is_set():
            raise _Stopped("the node stops")

    def _remove_old(self, store: Store) -> None:
        """Keep the newest; what was never finished goes with those that are too old."""
        complete, files = _split(store)
        kept = set(complete[-self._schedule.keep :])
        for name in sorted(files):
            if name in kept or name >= complete[-1]:
                continue
            # Without its manifest first, so that no broken backup looks whole.
            for file in sorted(files[name], key=lambda one: (one != MANIFEST, one)):
                store.delete(f"{name}/{file}")
            self._say("backup_removed", location=store.below(name).location)

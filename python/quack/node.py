"""The node process: Python hosts DuckDB, the extension does the work."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import signal
import sys
import threading
from typing import TextIO

import duckdb

from quack.backup.schedule import Scheduler
from quack.config import NodeConfig
from quack.errors import ClusterError
from quack.extension import connect

__all__ = ["EXIT_DEGRADED", "run_node"]

#: Exit code of a node that was latched degraded when it stopped.
EXIT_DEGRADED = 3


#: glibc's mallopt parameter for the number of arenas (malloc.h).
_M_ARENA_MAX = -8
#: Seconds between two returns of freed memory to the system.
_TRIM_INTERVAL_S = 10


class _Allocator:
    """Keeps a node's resident memory near what it uses.

    glibc gives every thread an arena of its own and keeps what is freed there; a node has many
    threads that each touch a batch now and then.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._trims = hasattr(self._library, "malloc_trim")
        if hasattr(self._library, "mallopt"):
            self._library.mallopt(_M_ARENA_MAX, 2)

    def trim(self) -> None:
        """Return freed pages to the system."""
        if self._trims:
            self._library.malloc_trim(0)


def _say(out: TextIO, event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), file=out, flush=True)


def run_node(config: NodeConfig, out: TextIO = sys.stdout) -> int:
    """Run a voter in the foreground until SIGTERM or SIGINT.

    A node that was told to restart (``quack_reseed``) replaces its process image by a new one.
    A clean stop hands leadership over and writes a checkpoint. Structured log lines go to standard
    error, events of the process itself to ``out``.

    Returns:
        0 after a clean stop, `EXIT_DEGRADED` when the node had latched itself out of service.

    Raises:
        ClusterError: the node could not start; the message says what is wrong and the fix.

    """
    allocator = _Allocator()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings: dict[str, object] = {}
    if config.memory_limit_mb is not None:
        settings["memory_limit"] = f"{config.memory_limit_mb}MB"
    session = connect(config=settings)
    try:
        session.execute("CALL quack_node_start(?)", [config.start_parameters()]).fetchall()
    except duckdb.Error as error:
        session.close()
        raise ClusterError(str(error)) from error
    mode = config.cluster_mode
    _say(
        out,
        "node_ready",
        node_id=config.node_id(),
        listen=f"{mode.listen_host or '0.0.0.0'}:{mode.cp_metadata_port}",
        pid=os.getpid(),
    )
    backups = None
    if config.backup is not None:
        backups = Scheduler(
            session.cursor(), config.backup, config.cluster_id(), functools.partial(_say, out)
        )
        backups.start()
    reason = _wait(session, stop, out, allocator)
    if backups is not None:
        backups.stop()
    _say(out, "node_stopping", node_id=config.node_id())
    session.execute("CALL quack_node_stop()").fetchall()
    session.close()
    _say(out, "node_stopped", node_id=config.node_id(), degraded=reason or False)
    # The interpreter drops the handlers before it ends: a second signal would spoil the code.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN if stop.is_set() else signal.SIG_DFL)
    if not stop.is_set():
        # Asked for by `quack cluster node reseed`. Same process id: whoever watches sees no end.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return EXIT_DEGRADED if reason else 0


def _wait(
    session: duckdb.DuckDBPyConnection,
    stop: threading.Event,
    out: TextIO,
    allocator: _Allocator,
) -> str | None:
    """Wait for the signal or a restart; report a degraded node once. Returns the reason, if any."""
    reason: str | None = None
    seconds = 0
    stopping = False
    while not stopping:
        stopping = stop.wait(1.0)
        due = session.execute("SELECT due FROM quack_node_restart_due()").fetchone()
        stopping = stopping or due == ("yes",)
        seconds += 1
        if seconds % _TRIM_INTERVAL_S == 0:
            allocator.trim()
        if reason is not None:
            continue
        row = session.execute(
            "SELECT reason FROM quack_raft_status() WHERE degraded LIMIT 1"
        ).fetchone()
        if row is not None:
            reason = str(row[0])
            _say(out, "node_degraded", reason=reason)
    return reason

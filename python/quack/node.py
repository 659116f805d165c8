"""The node process: Python hosts DuckDB, the extension does the work."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TextIO

import duckdb

from quack.config import NodeConfig
from quack.errors import ClusterError
from quack.extension import connect

__all__ = ["EXIT_DEGRADED", "run_node"]

#: Exit code of a node that was latched degraded when it stopped.
EXIT_DEGRADED = 3


def _say(out: TextIO, event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), file=out, flush=True)


def run_node(config: NodeConfig, out: TextIO = sys.stdout) -> int:
    """Run a voter in the foreground until SIGTERM or SIGINT.

    A clean stop hands leadership over and writes a checkpoint. Structured log lines go to standard
    error, events of the process itself to ``out``.

    Returns:
        0 after a clean stop, `EXIT_DEGRADED` when the node had latched itself out of service.

    Raises:
        ClusterError: the node could not start; the message says what is wrong and the fix.

    """
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
    reason = _wait(session, stop, out)
    _say(out, "node_stopping", node_id=config.node_id())
    session.execute("CALL quack_node_stop()").fetchall()
    session.close()
    _say(out, "node_stopped", node_id=config.node_id(), degraded=reason or False)
    return EXIT_DEGRADED if reason else 0


def _wait(session: duckdb.DuckDBPyConnection, stop: threading.Event, out: TextIO) -> str | None:
    """Wait for the signal; report a degraded node once. Returns the reason, if any."""
    reason: str | None = None
    while not stop.wait(1.0):
        if reason is not None:
            continue
        row = session.execute(
            "SELECT reason FROM quack_raft_status() WHERE degraded LIMIT 1"
        ).fetchone()
        if row is not None:
            reason = str(row[0])
            _say(out, "node_degraded", reason=reason)
    return reason

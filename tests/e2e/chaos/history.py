"""Recorded operations: what a client asked, when, and what it was told.

A history file holds one JSON object per line. An operation is written twice: when it is invoked
and when it completes. An operation without the second line (its client died) has an unknown
outcome. Times are nanoseconds of the machine's monotonic clock, so histories of several processes
can be merged.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal

Outcome = Literal["ok", "fail", "unknown"]

#: Completion time of an operation that may take effect at any later time.
FOREVER = 1 << 62


@dataclasses.dataclass
class Operation:
    """One operation of one client.

    Attributes:
        client: who; a client has one operation at a time.
        kind: what, in the words of its workload, such as "read".
        key: the object, where the workload has several.
        value: what was asked: the value written, the rows inserted, the amounts moved.
        invoked: before the request left.
        completed: after the answer came; `FOREVER` while none did.
        outcome: "ok": it happened. "fail": it did not and never will. "unknown": one of the two.
        result: what was answered: the value read.
        code: the stable error code, when there was one.
        error: the text of the error.
        fresh: whether a read was asked for as linearizable.

    """

    client: str
    kind: str
    key: Any = None
    value: Any = None
    invoked: int = 0
    completed: int = FOREVER
    outcome: Outcome = "unknown"
    result: Any = None
    code: str | None = None
    error: str | None = None
    fresh: bool = True
    #: How an unknown outcome was resolved later: "committed", "not_committed", or None.
    resolved: str | None = None
    #: The node that was asked, where the client is tied to one.
    node: str | None = None

    def brief(self) -> str:
        """One line for reports."""
        end = "…" if self.completed >= FOREVER else f"{self.completed / 1e9:.4f}"
        said = f" -> {_short(self.result)}" if self.result is not None else ""
        code = f" [{self.code}]" if self.code else ""
        return (
            f"{self.client} {self.kind} {self.key!r} {_short(self.value)}{said} {self.outcome}{code} "
            f"({self.invoked / 1e9:.4f} to {end})"
        )


def _short(value: Any, limit: int = 240) -> str:
    text = repr(value)
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} … {text[-half:]}"


@dataclasses.dataclass
class Verdict:
    """What a checker found.

    Attributes:
        name: of the checker.
        ok: no anomaly, and the checker could decide.
        figures: counts that the report shows.
        anomalies: each in words, with the operations that show it; bounded in number.

    """

    name: str
    ok: bool
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    anomalies: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, name: str, anomalies: Iterable[str], **figures: Any) -> Verdict:
        """Build a verdict; keeps the first anomalies and counts all."""
        found = list(anomalies)
        if found:
            figures["anomalies"] = len(found)
        return cls(name, not found, figures, found[:20])

    def document(self) -> dict[str, Any]:
        """Return the part of a report."""
        return {"ok": self.ok, **self.figures, "anomalies": self.anomalies}


class Recorder:
    """Appends operations to a history file; many threads may share one."""

    def __init__(self, file: pathlib.Path) -> None:
        self._stream = file.open("a", buffering=1)
        self._lock = threading.Lock()
        self._number = 0

    def invoke(self, operation: Operation) -> int:
        """Note the start, just before the request is sent; returns the handle for `complete`."""
        with self._lock:
            self._number += 1
            number = self._number
        operation.invoked = time.monotonic_ns()
        self._write({"number": number, "invoke": dataclasses.asdict(operation)})
        return number

    def complete(self, number: int, operation: Operation) -> None:
        """Note the end. The completion time of an unknown outcome counts as `FOREVER`."""
        now = time.monotonic_ns()
        operation.completed = FOREVER if operation.outcome == "unknown" else now
        fields = ("outcome", "result", "code", "error", "resolved", "completed", "value", "node")
        answer = {name: getattr(operation, name) for name in fields}
        self._write({"number": number, "complete": answer, "at": now})

    def _write(self, document: dict[str, Any]) -> None:
        line = json.dumps(document, separators=(",", ":")) + "\n"
        with self._lock:
            self._stream.write(line)

    def close(self) -> None:
        self._stream.close()


def load(file: pathlib.Path) -> list[Operation]:
    """Read one history file; a torn last line (the client was killed) is left out."""
    return list(_operations(file.read_text().splitlines()))


def _operations(lines: list[str]) -> Iterator[Operation]:
    started: dict[int, Operation] = {}
    for position, line in enumerate(lines):
        try:
            document = json.loads(line)
        except ValueError:
            if position + 1 == len(lines):
                break
            raise
        if "invoke" in document:
            started[document["number"]] = Operation(**document["invoke"])
        else:
            operation = started[document["number"]]
            for name, value in document["complete"].items():
                setattr(operation, name, value)
    yield from started.values()

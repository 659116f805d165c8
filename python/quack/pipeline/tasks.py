"""Work for Spark's tasks, and what their failures mean."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quack.errors import PipelineError, QuackError, code_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["collect", "run_each", "watched"]

#: An error of ours inside the text of Spark's: the name of the class, the words.
_OURS = re.compile(r"quack\.errors\.\w+: (?P<words>.+?)(?:\n\s*\n|\n\s+at |\n\tat |\Z)", re.DOTALL)
#: What Py4J says before the text of an error in Java.
_CALL = re.compile(r"\AAn error occurred while calling \S+\n: ")
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_LINE_MAX = 1000
_POLL_S = 0.2

#: Called with the finished and all tasks of the running step.
Watcher = Callable[[int, int], None]


def _told(error: BaseException) -> str:
    """Return the first line of an error of Spark's, and that of its root cause."""
    words = _first_line(_CALL.sub("", str(error))) or type(error).__name__
    root = error
    while getattr(root, "_cause", None) is not None:  # how PySpark keeps causes in Java
        root = root._cause  # type: ignore[attr-defined]
    causes = [_first_line(str(root))] if root is not error else _CAUSE.findall(str(error))
    if causes and causes[-1][:_LINE_MAX] not in words:
        words = f"{words}: {causes[-1][:_LINE_MAX]}"
    return words


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:_LINE_MAX]


def explained(doing: str, error: BaseException) -> PipelineError:
    """Return the error of a Spark job for the user: without the stack of the workers."""
    found = _OURS.findall(str(error))
    words = found[-1].strip() if found else _told(error)
    failure = PipelineError(f"{doing}: {words}")
    failure.code = code_of(failure)
    return failure


def collect(frame: DataFrame, doing: str) -> list[Any]:
    """Run a job; returns its rows.

    Raises:
        PipelineError: it failed; with the reason of the first task that did.

    """
    try:
        return frame.collect()
    except QuackError:
        raise
    except Exception as error:
        raise explained(doing, error) from None


def run_each(
    spark: SparkSession, function: Callable[[str], str], items: list[str], doing: str
) -> list[str]:
    """Call a function for each item, in a task per item; returns the answers, in any order.

    Args:
        spark: the session.
        function: travels to the tasks; takes and gives JSON.
        items: one per task.
        doing: for the message.

    Raises:
        PipelineError: a call failed.

    """
    if not items:
        return []

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"answer": [function(item)]})

    frame = spark.createDataFrame([(item,) for item in items], "item string")
    spread = frame.repartition(len(items)) if len(items) > 1 else frame
    return [row.answer for row in collect(spread.mapInArrow(each, "answer string"), doing)]


@contextlib.contextmanager
def watched(spark: SparkSession, watcher: Watcher | None) -> Iterator[None]:
    """Tell a watcher how many tasks of the Spark jobs inside are done.

    A session of Spark Connect has no status to ask; nothing is told there.
    """
    context = getattr(spark, "sparkContext", None)
    if watcher is None or context is None:
        yield
        return
    tracker = context.statusTracker()
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(_POLL_S):
            done = total = 0
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    done += info.numCompletedTasks
                    total += info.numTasks
            if total:
                watcher(done, total)

    thread = threading.Thread(target=poll, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

"""Sessions of the connector: one attached DuckDB connection each, errors without secrets."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator

import duckdb

from quack.errors import SparkError, code_of
from quack.extension import connect
from quack.spark.options import QuackOptions, text

__all__ = ["attached", "attached_for_planning", "connection_slot", "explained"]


def explained(doing: str, error: BaseException, options: QuackOptions) -> SparkError:
    """Return the error of a statement for the user: what was being done, the words, the code.

    Raise it ``from None``: the original text may quote the ATTACH statement.
    """
    words = str(error)
    with contextlib.suppress(SparkError):
        secret = options.secret()
        if secret:
            words = words.replace(secret, "***").replace(text(secret)[1:-1], "***")
    # Options of ATTACH have names of their own.
    words = words.replace("client_ca_file", "option ca_file")
    return SparkError(f"{doing}: {words}", code=code_of(error))


def _attach_sql(options: QuackOptions, consistency: str | None) -> str:
    parts = ["TYPE quack", f"consistency {text(consistency or options.consistency)}"]
    parts.append(f"request_timeout_ms {int(options.request_timeout_s * 1000)}")
    secret = options.secret()
    if secret:
        parts.append(f"TOKEN {text(secret)}")
    files = (
        ("cert_file", options.cert_file),
        ("key_file", options.key_file),
        ("client_ca_file", options.ca_file),
    )
    parts += [f"{name} {text(str(file))}" for name, file in files if file is not None]
    return f"ATTACH {text(options.url)} AS cp ({', '.join(parts)})"


def _attach(options: QuackOptions, attach_sql: str) -> duckdb.DuckDBPyConnection:
    session = connect(config={"threads": 2})
    try:
        session.execute(attach_sql)
        session.execute("USE cp")
        session.execute("SET TimeZone = 'UTC'")
        session.execute(f"SET quack_request_timeout_ms = {int(options.request_timeout_s * 1000)}")
    except duckdb.Error as error:
        session.close()
        raise explained(f"cannot attach {options.url}", error, options) from None
    except BaseException:
        session.close()
        raise
    return session


@contextlib.contextmanager
def attached(
    options: QuackOptions, *, consistency: str | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a session with the cluster as ``cp``, which is also the default catalog.

    Args:
        options: where and who.
        consistency: instead of the one in the options.

    Raises:
        SparkError: no node answers, or it refuses; url and reason are named, no secret is.

    """
    session = _attach(options, _attach_sql(options, consistency))
    try:
        yield session
    finally:
        session.close()


#: At most one session, by the ATTACH that made it.
_kept: dict[str, duckdb.DuckDBPyConnection] = {}


def _take_kept(attach_sql: str) -> duckdb.DuckDBPyConnection | None:
    session = _kept.pop(attach_sql, None)
    while _kept:
        _kept.popitem()[1].close()
    if session is not None:
        try:
            session.execute("FROM cp.query('SELECT 1')").fetchall()
        except duckdb.Error:
            session.close()
            return None
    return session


@contextlib.contextmanager
def attached_for_planning(options: QuackOptions) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a session as `attached` does, for reading, and keep it for the next call.

    Spark plans many queries in one process, which ends after a minute without work; attaching
    anew takes longer than the questions of a small read.

    Raises:
        SparkError: as `attached`.

    """
    attach_sql = _attach_sql(options, None)
    session = _take_kept(attach_sql) or _attach(options, attach_sql)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    _kept[attach_sql] = session


def _is_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def connection_slot(name: str, slots: int, *, timeout_s: float = 3600) -> Iterator[None]:
    """Hold one of so many places on this host; waits while all are taken.

    Args:
        name: of the job.
        slots: how many may hold one at the same time.
        timeout_s: longest wait, in seconds.

    Raises:
        SparkError: no place became free in time.

    """
    import fcntl

    folder = os.path.join(tempfile.gettempdir(), f"quack-spark-{os.getuid()}", "slots")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    while True:
        for number in range(slots):
            path = os.path.join(folder, f"{name}.{number}")
            file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_at(file, path):  # who held it has just removed it
                    raise BlockingIOError
            except OSError:
                os.close(file)
                continue
            try:
                yield
            finally:
                os.unlink(path)  # or every job would leave files; who opened it meanwhile sees that
                os.close(file)
            return
        if time.monotonic() > deadline:
            raise SparkError(
                f"no connection became free within {timeout_s:.0f} s: {slots} tasks of this host "
                "write already; raise max_connections"
            )
        time.sleep(0.05)

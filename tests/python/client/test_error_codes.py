"""Goal: the documented table, the codes of the extension and quack.errors say the same, and errors carry their code."""

from __future__ import annotations

import pathlib

import duckdb
import pytest

import quack
from quack import errors

TABLE = pathlib.Path(errors.__file__).with_name("ERRORS.md")


def documented() -> dict[str, tuple[str, str, str]]:
    rows = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and cells[0] not in ("code", "---"):
            assert cells[4], f"{cells[0]} has no meaning"
            rows[cells[0]] = (cells[1], cells[2], cells[3])
    return rows


def test_table_extension_and_classes_agree() -> None:
    session = quack.connect()
    listed = session.execute("FROM quack_error_codes()").fetchall()
    session.close()
    assert len(listed) >= 19
    table = documented()
    assert [row[0] for row in listed] == list(table)
    for code, exception_type, retry in listed:
        kind = errors.STATEMENT_ERRORS[code]
        assert table[code] == (exception_type, retry, kind.__name__)
        assert kind.retry == retry and kind.__name__ in errors.__all__
    assert set(errors.STATEMENT_ERRORS) == set(table)


def test_typed_errors_parse_their_text() -> None:
    token = "0123456789abcdef" * 2
    unknown = errors.typed(
        duckdb.Error(f"x quack_transaction_outcome('cp', '{token}') [quack:outcome_unknown]")
    )
    assert isinstance(unknown, errors.OutcomeUnknownError) and unknown.token == token
    busy = errors.typed(duckdb.Error("too much; retry after 75 ms [quack:overloaded]"))
    assert isinstance(busy, errors.OverloadedError) and busy.retry_after_ms == 75
    assert errors.typed(duckdb.Error("plain")) is None
    assert errors.typed(duckdb.Error("y [quack:no_such_code]")) is None


@pytest.mark.cluster
def test_errors_of_a_cluster_carry_their_code(cluster, session) -> None:
    session.execute("CREATE OR REPLACE TABLE cp.e (i INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
    session.execute("INSERT INTO cp.e VALUES (1, 1)")
    for statement, code in (
        ("INSERT INTO cp.e VALUES (1, 2)", "constraint"),
        ("INSERT INTO cp.e VALUES (2, NULL)", "constraint"),
        ("INSERT INTO cp.e SELECT i, n FROM (VALUES (1, 5)) v(i, n)", "constraint"),
        ("SELECT * FROM quack_transaction_outcome('cp', 'nonsense')", "invalid_argument"),
    ):
        with pytest.raises(duckdb.Error) as caught:
            session.execute(statement).fetchall()
        assert errors.code_of(caught.value) == code, caught.value
    other = cluster.connect(cluster.nodes[1])
    session.execute("BEGIN")
    session.execute("UPDATE cp.e SET n = 5 WHERE i = 1")
    other.execute("UPDATE cp.e SET n = 6 WHERE i = 1")
    with pytest.raises(duckdb.Error) as caught:
        session.execute("COMMIT")
    assert errors.code_of(caught.value) == "conflict", caught.value
    assert isinstance(errors.typed(caught.value), errors.ConflictError)
    assert other.execute("SELECT n FROM cp.e").fetchall() == [(6,)]
    other.close()
    with pytest.raises(duckdb.Error) as caught:
        bad = quack.connect()
        bad.execute(cluster.attach_sql().replace(cluster.token, "wrong-token"))
    assert errors.code_of(caught.value) == "unauthorized", caught.value
    bad.close()

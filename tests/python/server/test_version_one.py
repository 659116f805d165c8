"""Goal: what the stock 1.5 client sends is answered in the shapes it reads (version 1)."""

from __future__ import annotations

import pytest
import quack_wire as wire
from server_node import Node

pytestmark = pytest.mark.cluster

SCHEMATA = (
    "\nSELECT catalog_name, schema_name\nFROM information_schema.schemata\n"
    "WHERE catalog_name NOT IN ('system', 'temp')\nORDER BY ALL\n\t"
)
TABLES = (
    "\nSELECT schema_name, sql, 'table'\nFROM duckdb_tables()\nUNION ALL\n"
    "SELECT schema_name, view_name, 'view'\nFROM duckdb_views()\n\t"
)


@pytest.fixture
def old(node: Node) -> wire.Session:
    return node.session(version=1)


def test_handshake(old):
    assert old.quack_version == 1 and old.server_version == "v2.0.1"


def test_catalog_queries_are_inline(old):
    old.query("CREATE TABLE catalogued (i INTEGER, s VARCHAR);")
    schemas = old.prepare(SCHEMATA)
    assert not schemas.needs_more and ("cp", "main") in schemas.rows()
    tables = old.prepare(TABLES)
    assert not tables.needs_more
    assert any(
        schema == "main" and "catalogued" in sql
        for schema, sql, kind in tables.rows()
        if kind == "table"
    )


def test_append_and_select(old):
    old.query("CREATE TABLE appended(i INTEGER, s VARCHAR);")
    old.append("main", "appended", wire.write_chunk(*columns([1, 2], ["a", None])))
    old.append("main", "appended", wire.write_chunk(*columns([3], ["c"])))
    assert old.query("SELECT #1, #2 FROM appended") == [(1, "a"), (2, None), (3, "c")]


def columns(
    numbers: list[int], texts: list[str | None]
) -> tuple[list[wire.Type], list[list[object]]]:
    return [wire.Type.of("INTEGER"), wire.Type.of("VARCHAR")], [numbers, texts]


def test_append_follows_the_transaction(old):
    old.query("CREATE TABLE transacted(i INTEGER, s VARCHAR);")
    old.query("BEGIN TRANSACTION")
    old.append("main", "transacted", wire.write_chunk(*columns([1], ["a"])))
    old.query("ROLLBACK")
    assert old.query("SELECT count(*) FROM transacted") == [(0,)]


def test_large_results_are_fetched(old):
    prepared = old.prepare("SELECT range, 'v' || range FROM range(200000)")
    assert prepared.needs_more
    rows, seen = prepared.rows(), []
    while True:
        chunks, index, _ = old.fetch(prepared.uuid)
        if index is None:
            break
        seen.append(index)
        rows += [row for chunk in chunks for row in zip(*chunk, strict=True)]
    assert rows == [(i, f"v{i}") for i in range(200000)]
    assert seen == list(range(1, len(seen) + 1))
    assert old.fetch(prepared.uuid)[1] is None


def test_errors_have_one_field(old):
    with pytest.raises(wire.QuackError) as caught:
        old.query("SELECT * FROM nowhere")
    assert caught.value.exception_type == "" and caught.value.extra_info == {}
    assert "nowhere does not exist" in caught.value.message and "LINE 1" in caught.value.message
    with pytest.raises(wire.QuackError, match="does not exist"):
        old.append("main", "nowhere", wire.write_chunk(*columns([1], ["a"])))
    with pytest.raises(wire.QuackError, match="Unsupported message type"):
        old.heartbeat()


def test_wrong_token_in_version_one(node):
    with pytest.raises(wire.QuackError, match="Authentication failed") as caught:
        node.session("nope", version=1)
    assert caught.value.exception_type == ""


def test_catalog_is_plain_enough_to_bind(old):
    """Defaults that call functions, foreign keys and constraints would break the client's ATTACH."""
    old.query("CREATE SEQUENCE numbers")
    old.query(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY DEFAULT nextval('numbers'), "
        "made TIMESTAMP DEFAULT now(), kind VARCHAR NOT NULL DEFAULT 'plain', n INTEGER DEFAULT 7)"
    )
    old.query('CREATE TABLE child (id INTEGER REFERENCES parent(id), "odd ""name" DECIMAL(9,2))')
    texts = [sql for _, sql, kind in old.prepare(TABLES).rows() if kind == "table"]
    parent = next(text for text in texts if "parent" in text)
    assert "nextval" not in parent and "now()" not in parent
    assert "DEFAULT 'plain'" in parent and "DEFAULT 7" in parent and "NOT NULL" in parent
    child = next(text for text in texts if '"child"' in text)
    assert "REFERENCES" not in child and '"odd ""name" DECIMAL(9,2)' in child
    assert not any("__quack" in schema for schema, _, _ in old.prepare(TABLES).rows())

"""The same random statements of one client on a plain DuckDB and on a replica: same answers, same data, equal replicas.

With several groups the replica's tables are placed in groups at random, and move between them; that must not show.
Replicas then apply the logs of the groups each in another order. As a program: runs seeds one after the other, each for
every number of groups; the last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from catalog_replica import Cluster

Sql = str

#: Literals by type. Values that are hard to carry: extremes, NaN, signed zero, empty, quotes, NUL bytes, nesting.
LITERALS: dict[str, list[Sql]] = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127", "0"],
    "UBIGINT": ["0", "18446744073709551615"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "7"],
    "HUGEINT": ["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"],
    "UHUGEINT": ["340282366920938463463374607431768211455", "1"],
    "DECIMAL(18,3)": ["123456789012345.678", "-0.001"],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789", "-1"],
    "FLOAT": ["'nan'", "'-inf'", "'-0.0'", "1.5", "3.4e38"],
    "DOUBLE": ["'nan'", "'inf'", "'-0.0'", "0.1", "1.7976931348623157e308", "5e-324"],
    "VARCHAR": ["''", "'it''s \"q\" ;--'", "'é漢字'", "repeat('z', 5000)", "chr(0) || 'x'"],
    "BLOB": ["''", "'\\x00\\xFF'", "'abc'"],
    "DATE": ["'0001-01-01'", "'infinity'", "'2024-02-29'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'"],
    "TIMESTAMP": ["'1970-01-01'", "'-infinity'", "'2262-04-11 23:47:16.854775'"],
    "TIMESTAMP_NS": ["'2024-01-01 00:00:00.123456789'"],
    "TIMESTAMP WITH TIME ZONE": ["'2024-06-01 12:00:00+02'", "'infinity'"],
    "INTERVAL": ["'1 year 2 months -3 days 00:00:01.5'", "'-1 month'"],
    "UUID": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "BIT": ["'0'", "'010111'"],
    "ENUM('sad', 'ok', 'very happy')": ["'sad'", "'very happy'"],
    "INTEGER[]": ["[]", "[1, NULL, 3]", "[NULL]"],
    "INTEGER[3]": ["[1, 2, 3]", "[NULL, 0, -1]"],
    "VARCHAR[][]": ["[[]]", "[['a', NULL], NULL, []]"],
    "STRUCT(a INTEGER, b VARCHAR[])": ["{'a': 1, 'b': ['x']}", "{'a': NULL, 'b': NULL}"],
    "MAP(VARCHAR, STRUCT(x DOUBLE))": ["MAP {'k': {'x': 1.5}}", "MAP {}", "MAP {'a': NULL}"],
    "UNION(i INTEGER, s VARCHAR)": ["union_value(i := 1)", "union_value(s := 'text')"],
}  # fmt: skip
TABLES = ["t0", "t1", "t2"]
NULL_SHARE = 0.15
STATEMENTS = 150
#: What a replica says of things that DuckDB alone would do.
REFUSALS = ("not_supported", "is part of its shard key")
#: Statements before which a table moves.
MOVE_SHARE = 0.05


class Model:
    """What the oracle's catalog holds now; statements are drawn from it."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.columns: dict[str, dict[str, str]] = {}
        rows = con.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'cp' AND "
            "schema_name = 'main' AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE "
            "database_name = 'cp') ORDER BY table_name, column_index"
        ).fetchall()
        for table, column, kind in rows:
            self.columns.setdefault(table, {})[column] = kind


class Statements:
    """Draws statements. Every table has a column k INTEGER, in some with a primary key."""

    def __init__(self, rng: random.Random, groups: int = 1) -> None:
        self.rng = rng
        self.groups = groups
        self.in_transaction = False
        self.kinds: list[tuple[int, Callable[[Model], Sql]]] = [
            (20, self.insert),
            (6, self.upsert),
            (10, self.update),
            (4, self.move_key),
            (6, self.delete),
            (3, self.merge),
            (8, self.select),
            (3, self.copy_rows),
            (8, self.transaction),
            (6, self.table_ddl),
            (8, self.column_ddl),
            (4, self.other_ddl),
        ]

    def placed(self, sql: Sql) -> Sql:
        """Return the replica's wording of a CREATE TABLE."""
        if self.groups == 1 or not sql.startswith("CREATE TABLE"):
            return sql
        how = self.rng.random()
        if how < 0.2:
            return sql
        if how < 0.4:
            return f"{sql} WITH (quack_group = 'pinned-{self.rng.randrange(2)}')"
        return f"{sql} WITH (quack_shard_key = 'k', quack_initial_groups = {self.groups})"

    def move(self, model: Model) -> Sql | None:
        """Draw a statement for the replica alone: a table changes its groups."""
        if self.groups == 1 or not model.columns or self.in_transaction:
            return None
        if self.rng.random() > MOVE_SHARE:
            return None
        to = self.rng.choice(
            [
                f"GROUPS {self.rng.randrange(1, 2 * self.groups + 1)}",
                f"GROUPS {self.groups}",
                f"GROUP 'pinned-{self.rng.randrange(2)}'",
                "GROUP DEFAULT",
            ]
        )
        return f"ALTER TABLE {self.table(model)} SET {to}"

    def draw(self, model: Model) -> Sql:
        if len(model.columns) < 2:
            return self.create_table(model)
        weights = [weight for weight, _ in self.kinds]
        return self.rng.choices([kind for _, kind in self.kinds], weights)[0](model)

    def table(self, model: Model) -> str:
        return self.rng.choice(list(model.columns))

    def column(self, model: Model, table: str) -> str:
        others = [name for name in model.columns[table] if name != "k"]
        return self.rng.choice(others) if others else "k"

    def literal(self, kind: str) -> Sql:
        if self.rng.random() < NULL_SHARE:
            return "NULL"
        if kind == "INTEGER":
            return str(self.rng.randrange(60))
        known = LITERALS.get(kind)
        return f"({self.rng.choice(known)})::{kind}" if known else "NULL"

    def where(self) -> Sql:
        return self.rng.choice(
            [
                f"k % {self.rng.randrange(2, 7)} = {self.rng.randrange(3)}",
                f"k = {self.rng.randrange(60)}",
                f"k BETWEEN {self.rng.randrange(30)} AND {self.rng.randrange(30, 60)}",
                "k IS NULL",
            ]
        )

    def values(self, model: Model, table: str, columns: list[str]) -> Sql:
        rows = []
        for _ in range(self.rng.randrange(1, 6)):
            cells = [
                str(self.rng.randrange(60))
                if name == "k"
                else self.literal(model.columns[table][name])
                for name in columns
            ]
            rows.append(f"({', '.join(cells)})")
        return ", ".join(rows)

    def some_columns(self, model: Model, table: str) -> list[str]:
        return ["k", *(n for n in model.columns[table] if n != "k" and self.rng.random() < 0.8)]

    def insert(self, model: Model) -> Sql:
        table = self.table(model)
        columns = self.some_columns(model, table)
        returning = self.rng.choice(["", "", " RETURNING k"])
        names = ", ".join(columns)
        return (
            f"INSERT INTO {table}({names}) VALUES {self.values(model, table, columns)}{returning}"
        )

    def upsert(self, model: Model) -> Sql:
        table = self.table(model)
        columns = self.some_columns(model, table)
        column = self.column(model, table)
        action = self.rng.choice(["NOTHING", f"UPDATE SET {column} = excluded.{column}"])
        conflict = "(k) " if action != "NOTHING" else ""
        names = ", ".join(columns)
        return (
            f"INSERT INTO {table}({names}) VALUES {self.values(model, table, columns)} "
            f"ON CONFLICT {conflict}DO {action}"
        )

    def update(self, model: Model) -> Sql:
        table = self.table(model)
        column = self.column(model, table)
        value = self.literal(model.columns[table][column])
        return f"UPDATE {table} SET {column} = {value} WHERE {self.where()}"

    def move_key(self, model: Model) -> Sql:
        offset = self.rng.choice([1, 100, -100])
        return f"UPDATE {self.table(model)} SET k = k + {offset} WHERE {self.where()}"

    def delete(self, model: Model) -> Sql:
        table = self.table(model)
        return self.rng.choice(
            [
                f"DELETE FROM {table} WHERE {self.where()}",
                f"DELETE FROM {table} WHERE {self.where()} RETURNING k",
                f"TRUNCATE {table}",
            ]
        )

    def merge(self, model: Model) -> Sql:
        table = self.table(model)
        return (
            f"MERGE INTO {table} t USING (SELECT range::INT k FROM range({self.rng.randrange(40)})) s ON t.k = s.k "
            f"WHEN MATCHED AND s.k % 2 = 0 THEN DELETE "
            f"WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
        )

    def select(self, model: Model) -> Sql:
        return f"SELECT * FROM {self.table(model)}"

    def copy_rows(self, model: Model) -> Sql:
        table = self.table(model)
        return f"INSERT INTO {table} SELECT * REPLACE (k + 1000 AS k) FROM {table} WHERE {self.where()}"

    def transaction(self, model: Model) -> Sql:
        del model
        if not self.in_transaction:
            return "BEGIN"
        return self.rng.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"])

    def create_table(self, model: Model) -> Sql:
        free = [name for name in TABLES if name not in model.columns] or TABLES
        key = self.rng.choice(["INTEGER", "INTEGER PRIMARY KEY", "INTEGER CHECK (k < 5000)"])
        columns = [f"k {key}"]
        for i in range(self.rng.randrange(1, 8)):
            kind = self.rng.choice(list(LITERALS))
            default = f" DEFAULT {self.literal(kind)}" if self.rng.random() < 0.3 else ""
            columns.append(f"c{i} {kind}{default}")
        return f"CREATE TABLE {self.rng.choice(free)}({', '.join(columns)})"

    def table_ddl(self, model: Model) -> Sql:
        table = self.table(model)
        return self.rng.choice(
            [
                self.create_table(model),
                self.create_table(model),
                f"DROP TABLE {table}",
                f"ALTER TABLE {table} RENAME TO {self.rng.choice(TABLES)}",
                f"COMMENT ON TABLE {table} IS 'c{self.rng.randrange(9)}'",
            ]
        )

    def column_ddl(self, model: Model) -> Sql:
        table = self.table(model)
        column = self.column(model, table)
        fresh = f"c{self.rng.randrange(20)}"
        kind = self.rng.choice(list(LITERALS))
        return self.rng.choice(
            [
                f"ALTER TABLE {table} ADD COLUMN {fresh} {kind}",
                f"ALTER TABLE {table} ADD COLUMN {fresh} {kind} DEFAULT {self.literal(kind)}",
                f"ALTER TABLE {table} DROP COLUMN {column}",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO {fresh}",
                f"ALTER TABLE {table} ALTER {column} TYPE VARCHAR",
                f"ALTER TABLE {table} ALTER k SET NOT NULL",
                f"ALTER TABLE {table} ALTER {column} DROP DEFAULT",
            ]
        )

    def other_ddl(self, model: Model) -> Sql:
        table = self.table(model)
        choices = [
            f"CREATE OR REPLACE VIEW v AS SELECT count(*) n FROM {table}",
            "DROP VIEW IF EXISTS v",
            "SELECT * FROM v",
        ]
        if not self.in_transaction:  # there its uniqueness shows at COMMIT only
            name = f"i{self.rng.randrange(3)}"
            choices += [
                f"CREATE INDEX {name} ON {table}(k)",
                f"CREATE UNIQUE INDEX {name} ON {table}(k)",
                f"DROP INDEX IF EXISTS {name}",
            ]
        return self.rng.choice(choices)


def answer(con: duckdb.DuckDBPyConnection, sql: Sql) -> tuple[str, Any]:
    """Rows as text in any order, or the kind of error."""
    try:
        rows = con.execute(sql).fetchall()
    except duckdb.Error as error:
        return type(error).__name__, str(error)
    return "ok", sorted(repr(row) for row in rows)


def contents(con: duckdb.DuckDBPyConnection, model: Model) -> dict[str, list[str]]:
    return {table: answer(con, f"SELECT * FROM {table}")[1] for table in model.columns}


class Run:
    """One sequence on both sides."""

    def __init__(self, cluster: Cluster, rng: random.Random, groups: int = 1) -> None:
        self.cluster = cluster
        if groups > 1:
            cluster[0].command("multiraft", "on")
            for number, replica in enumerate(cluster.replicas):
                replica.command("hold_back", "", str(number + 1))
        self.replica = cluster[0].con
        self.oracle = duckdb.connect(":memory:", config={"threads": "2"})
        self.oracle.execute("ATTACH ':memory:' AS cp")
        self.oracle.execute("USE cp")
        self.statements = Statements(rng, groups)
        self.done: list[Sql] = []
        self.moves = 0
        self.succeeded = 0
        self.refused = 0

    def step(self) -> str | None:
        """Runs one statement on both; returns what differs."""
        # An aborted transaction refuses the look into the catalog, and everything else.
        try:
            model = Model(self.oracle)
        except duckdb.TransactionException:
            return self.both("ROLLBACK")
        move = self.statements.move(model)
        if move is not None:
            self.done.append(move)
            kind, said = answer(self.replica, move)
            # Only a table that is sharded has a number of groups.
            if kind != "ok" and not ("SET GROUPS" in move and "shard" in str(said)):
                return f"{move}\n  replica: {said}"
            self.moves += kind == "ok"
        return self.both(self.statements.draw(model))

    def both(self, sql: Sql) -> str | None:
        placed = self.statements.placed(sql)
        self.done.append(placed)
        mine = answer(self.replica, placed)
        is_refused = any(words in str(mine[1]) for words in REFUSALS)
        if is_refused and (sql == "COMMIT" or not self.statements.in_transaction):
            self.refused += 1  # in words, wholly: the oracle must not commit either
            if sql == "COMMIT":
                self.oracle.execute("ROLLBACK")
            self.statements.in_transaction = False
            return None
        theirs = answer(self.oracle, sql)
        if sql == "BEGIN":
            self.statements.in_transaction = True
        elif sql in ("COMMIT", "ROLLBACK"):
            self.statements.in_transaction = False
        self.succeeded += mine[0] == "ok"
        if mine[0] == theirs[0] and (mine[0] != "ok" or mine[1] == theirs[1]):
            return None
        both_refuse_at_commit = (
            "ok" not in (mine[0], theirs[0]) and not self.statements.in_transaction
        )
        if both_refuse_at_commit and "Failed to commit" in str(mine[1]):
            return None  # an autocommit statement hears of its constraint at commit
        return f"{sql}\n  replica: {mine}\n  DuckDB: {theirs}"

    def finish(self) -> str | None:
        if self.statements.in_transaction:
            difference = self.both("ROLLBACK")
            if difference:
                return difference
        model = Model(self.oracle)
        wanted = contents(self.oracle, model)
        self.cluster.assert_equal()
        for replica in self.cluster.replicas:
            found = contents(replica.con, Model(replica.con))
            if found != wanted:
                tables = [t for t in {*found, *wanted} if found.get(t) != wanted.get(t)]
                return f"{replica.node}: tables {tables} differ from DuckDB"
        return None


def run(directory: Path, seed: int, statements: int, groups: int = 1) -> dict[str, Any]:
    cluster = Cluster(directory, 3)
    test = Run(cluster, random.Random(seed), groups)
    difference = None
    while difference is None and len(test.done) < statements:
        difference = test.step()
    difference = difference or test.finish()
    cluster.close()
    return {
        "seed": seed,
        "groups": groups,
        "ok": difference is None,
        "statements": len(test.done),
        "moves": test.moves,
        "succeeded": test.succeeded,
        "refused": test.refused,
        "difference": difference,
        "before": test.done[-12:-1] if difference else [],
    }


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--statements", type=int, default=100 * STATEMENTS, help="at least so many")
    parser.add_argument("--seed", type=int, default=1, help="the first; others follow")
    parser.add_argument(
        "--groups",
        type=numbers,
        default=[1],
        help="numbers of groups, with commas; each seed runs with each",
    )
    arguments = parser.parse_args()
    failed = []
    counts = dict.fromkeys(("statements", "succeeded", "refused", "moves"), 0)
    seed = arguments.seed
    while counts["statements"] < arguments.statements:
        for groups in arguments.groups:
            with tempfile.TemporaryDirectory() as directory:
                result = run(Path(directory), seed, STATEMENTS, groups)
            for name in counts:
                counts[name] += result[name]
            if not result["ok"]:
                failed.append([seed, groups])
                print(json.dumps(result, indent=1), flush=True)
        seed += 1
        print(f"\r{counts['statements']} statements", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(
        json.dumps(
            {
                "ok": not failed,
                "seed": arguments.seed,
                "seeds": seed - arguments.seed,
                "groups": arguments.groups,
                **counts,
                "failed": failed,
            }
        )
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

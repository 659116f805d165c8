"""The change feed: what was applied, in order, exactly once, on every replica."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from catalog_replica import Cluster, Replica
from change_fold import changes, content, fold

SEGMENT_BYTES = 4 * 1024 * 1024
RETENTION = str(1 << 30)


def kinds(replica: Replica, table: str, start: Any = None, end: Any = None) -> list[tuple]:
    """The kind of each change and the table's columns."""
    return [(row[0], *row[4:]) for row in changes(replica, table, start, end)]


def position(replica: Replica) -> str:
    """What is applied on the replica."""
    replica.command("wait")
    groups = [line.split("|") for line in replica.command("changes").splitlines()[1:]]
    return ",".join(f"{group[0]}:{group[3]}" for group in groups)


def assert_same_feed(cluster: Cluster, table: str) -> list[tuple]:
    """All replicas tell the same changes; returns them."""
    feeds = [changes(replica, table) for replica in cluster.replicas]
    assert all(feed == feeds[0] for feed in feeds)
    return feeds[0]


@pytest.fixture
def fed(cluster: Cluster) -> Cluster:
    """Three replicas that keep changes."""
    cluster[0].command("retention", RETENTION)
    return cluster


def test_nothing_is_kept_by_default(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t (i INTEGER)")
    replica.con.execute("INSERT INTO t VALUES (1)")
    tables = replica.rows("SELECT table_name FROM duckdb_tables() WHERE schema_name = '__quack'")
    assert sorted(tables) == [("entries",), ("state",)]
    with pytest.raises(duckdb.NotImplementedException, match="quack_changes_set_retention"):
        changes(replica, "t")


def test_each_kind_of_change_with_its_images(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER, v TEXT)")
    node.con.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    node.con.execute("UPDATE t SET v = v || '!' WHERE i < 3")
    node.con.execute("DELETE FROM t WHERE i = 2")
    node.con.execute("TRUNCATE t")
    for row in assert_same_feed(fed, "t"):
        assert row[1] == 1
    assert kinds(node, "t") == [
        ("insert", 1, "a"),
        ("insert", 2, "b"),
        ("insert", 3, "c"),
        ("update_preimage", 1, "a"),
        ("update_postimage", 1, "a!"),
        ("update_preimage", 2, "b"),
        ("update_postimage", 2, "b!"),
        ("delete", 2, "b!"),
        ("delete", 1, "a!"),
        ("delete", 3, "c"),
    ]


def test_order_and_request_id_name_the_commit(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    node.con.execute("BEGIN")
    node.con.execute("INSERT INTO t VALUES (1), (2)")
    node.con.execute("INSERT INTO t VALUES (3)")
    node.con.execute("COMMIT")
    _, request, index = node.con.execute(
        "SELECT unnest(string_split(system.main.quack_test('last_commit'), '|'))"
    ).fetchall()
    rows = node.rows(
        "SELECT commit_index, commit_order, request_id, i FROM quack_changes('cp', 't', NULL, NULL)"
    )
    assert rows == [(int(index[0]), i, request[0], i + 1) for i in range(3)]


def test_a_rejected_transaction_leaves_nothing(fed: Cluster) -> None:
    fed[0].con.execute("CREATE TABLE t (i INTEGER PRIMARY KEY, v INTEGER)")
    fed[0].con.execute("INSERT INTO t VALUES (1, 0)")
    fed[1].command("wait")
    fed[1].con.execute("BEGIN")
    fed[1].con.execute("UPDATE t SET v = 2 WHERE i = 1")
    fed[0].con.execute("UPDATE t SET v = 1 WHERE i = 1")
    with pytest.raises(duckdb.Error):
        fed[1].con.execute("COMMIT")
    with pytest.raises(duckdb.ConstraintException):
        fed[0].con.execute("INSERT INTO t VALUES (1, 3)")
    assert_same_feed(fed, "t")
    assert kinds(fed[2], "t") == [
        ("insert", 1, 0),
        ("update_preimage", 1, 0),
        ("update_postimage", 1, 1),
    ]


def test_changes_from_before_it_was_switched_on_are_not_there(cluster: Cluster) -> None:
    node = cluster[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    node.con.execute("INSERT INTO t VALUES (1)")
    before = position(node)
    node.command("retention", RETENTION)
    node.con.execute("INSERT INTO t VALUES (2)")
    assert kinds(node, "t") == [("insert", 2)]
    with pytest.raises(duckdb.CatalogException, match="were dropped"):
        changes(node, "t", before)


def test_switching_it_off_drops_what_was_kept(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    node.con.execute("INSERT INTO t VALUES (1)")
    node.command("retention", "0")
    with pytest.raises(duckdb.NotImplementedException, match="keeps no changes"):
        changes(node, "t")
    for replica in fed.replicas:
        replica.command("wait")
        tables = replica.rows("SELECT table_name FROM duckdb_tables() WHERE schema_name='__quack'")
        assert sorted(tables) == [("entries",), ("state",)]
    node.command("retention", RETENTION)
    node.con.execute("INSERT INTO t VALUES (2)")
    assert {tuple(kinds(replica, "t")) for replica in fed.replicas} == {(("insert", 2),)}


def test_a_range_is_behind_from_and_up_to_to(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    places = []
    for i in range(4):
        node.con.execute("INSERT INTO t VALUES (?)", [i])
        places.append(position(node))
    assert kinds(node, "t", places[0], places[2]) == [("insert", 1), ("insert", 2)]
    assert kinds(node, "t", places[3]) == []
    as_number = int(places[1].split(":")[1])
    assert kinds(node, "t", as_number) == [("insert", 2), ("insert", 3)]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("missing", None, None), duckdb.CatalogException, "no table 'missing'"),
        (("t", "1:900", None), duckdb.ConnectionException, "1:900 is ahead of"),
        (("t", None, "1:900"), duckdb.ConnectionException, "1:900 is ahead of"),
        (("t", 0, None), duckdb.CatalogException, "1:0 are not all kept any more"),
        (("t", "1:5", "1:4"), duckdb.InvalidInputException, "end before they begin"),
        (("t", "1-5", None), duckdb.InvalidInputException, "positions like"),
        (("t", -1, None), duckdb.InvalidInputException, "an index of the log"),
        ((None, None, None), duckdb.InvalidInputException, "name is NULL"),
    ],
)
def test_a_bad_question_is_refused_in_words(
    fed: Cluster, arguments: tuple, error: type[duckdb.Error], text: str
) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    for i in range(3):
        node.con.execute("INSERT INTO t VALUES (?)", [i])
    with pytest.raises(error, match=text):
        node.rows("SELECT * FROM quack_changes(?, ?, ?)", *arguments)


def test_an_open_transaction_reads_the_feed_of_its_snapshot(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    node.con.execute("INSERT INTO t VALUES (1)")
    reader = node.session()
    reader.execute("BEGIN")
    assert reader.execute("SELECT i FROM t").fetchall() == [(1,)]
    node.con.execute("INSERT INTO t VALUES (2)")
    node.con.execute("ALTER TABLE t RENAME TO u")
    read = "SELECT i FROM quack_changes('t', NULL, {})"
    assert reader.execute(read.format("NULL")).fetchall() == [(1,)]
    with pytest.raises(duckdb.ConnectionException, match="ahead of what this transaction sees"):
        reader.execute(read.format(f"'{position(node)}'"))
    reader.execute("ROLLBACK")


def test_rows_of_older_definitions_are_mapped_by_name(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER, gone TEXT, v INTEGER)")
    node.con.execute("INSERT INTO t VALUES (1, 'x', 10)")
    node.con.execute("ALTER TABLE t DROP COLUMN gone")
    node.con.execute("ALTER TABLE t ADD COLUMN w DATE")
    node.con.execute("INSERT INTO t VALUES (2, 20, DATE '2026-01-02')")
    node.con.execute("ALTER TABLE t ALTER v TYPE VARCHAR")
    node.con.execute("BEGIN")
    node.con.execute("DELETE FROM t WHERE i = 1")
    node.con.execute("ALTER TABLE t ADD COLUMN z INTEGER DEFAULT 7")
    node.con.execute("COMMIT")
    assert_same_feed(fed, "t")
    rows = [(row[0], *map(str, row[1:])) for row in kinds(node, "t")]
    assert rows == [
        ("insert", "1", "10", "None", "None"),
        ("insert", "2", "20", "2026-01-02", "None"),
        ("delete", "1", "10", "None", "None"),
    ]


def test_a_value_that_does_not_fit_any_more_names_its_column(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER, v TEXT)")
    node.con.execute("INSERT INTO t VALUES (1, 'no number')")
    node.con.execute("UPDATE t SET v = '5'")
    node.con.execute("ALTER TABLE t ALTER v TYPE INTEGER")
    with pytest.raises(duckdb.InvalidInputException, match='column "v" of table "t" was VARCHAR'):
        changes(node, "t")


def test_a_renamed_table_keeps_its_changes_and_a_new_one_has_none(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    node.con.execute("INSERT INTO t VALUES (1)")
    node.con.execute("ALTER TABLE t RENAME TO u")
    node.con.execute("CREATE TABLE t (i INTEGER)")
    node.con.execute("INSERT INTO t VALUES (2)")
    node.con.execute("INSERT INTO u VALUES (3)")
    assert kinds(fed[1], "u") == [("insert", 1), ("insert", 3)]
    assert kinds(fed[1], "t") == [("insert", 2)]
    node.con.execute("CREATE OR REPLACE TABLE t AS SELECT 4 AS i")
    assert kinds(fed[2], "t") == [("insert", 4)]
    node.con.execute("CREATE SCHEMA s")
    node.con.execute('CREATE TABLE s.t ("change" TEXT)')
    node.con.execute("INSERT INTO s.t VALUES ('mine')")
    assert node.rows("SELECT change, change_1 FROM quack_changes('s.t', NULL, NULL)") == [
        ("insert", "mine")
    ]


def test_a_prepared_statement_follows_the_table(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    node.con.execute("CREATE TABLE t (i INTEGER, m mood)")
    node.con.execute("INSERT INTO t VALUES (1, 'glad')")
    node.con.execute(
        "PREPARE feed AS SELECT * EXCLUDE (request_id) FROM quack_changes('t', NULL, NULL)"
    )
    assert [row[4:] for row in node.rows("EXECUTE feed")] == [(1, "glad")]
    node.con.execute("ALTER TABLE t ADD COLUMN w INTEGER")
    node.con.execute("INSERT INTO t VALUES (2, 'sad', 5)")
    assert [row[4:] for row in node.rows("EXECUTE feed")] == [(1, "glad", None), (2, "sad", 5)]
    node.con.execute("ALTER TABLE t DROP COLUMN m")
    assert [row[4:] for row in node.rows("EXECUTE feed")] == [(1, None), (2, 5)]
    node.con.execute("DROP TYPE mood")
    assert kinds(fed[2], "t") == [("insert", 1, None), ("insert", 2, 5)]


def test_values_of_every_type_come_back(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t AS SELECT * FROM test_all_types()")
    node.con.execute("UPDATE t SET int = 5")
    node.con.execute("DELETE FROM t")
    for replica in fed.replicas:
        replica.command("wait")
        replica.con.execute("CREATE TEMP TABLE source AS SELECT * FROM test_all_types()")
        feed = "SELECT * EXCLUDE (change, commit_group, commit_index, commit_order, request_id) "
        feed += "FROM quack_changes('t', NULL, NULL) WHERE change = "
        assert replica.rows(f"{feed}'insert' EXCEPT ALL FROM source") == []
        assert replica.rows(f"FROM source EXCEPT ALL {feed}'insert'") == []
        assert replica.rows(f"{feed}'update_preimage' EXCEPT ALL FROM source") == []
        assert replica.rows(f"{feed}'delete' EXCEPT ALL {feed}'update_postimage'") == []
        assert kinds_count(replica, "t") == {
            "insert": 3,
            "update_preimage": 3,
            "update_postimage": 3,
            "delete": 3,
        }


def kinds_count(replica: Replica, table: str) -> dict[str, int]:
    return dict(
        replica.rows(
            "SELECT change, count(*) FROM quack_changes(?, NULL, NULL) GROUP BY change", table
        )
    )


def test_a_large_transaction_is_one_commit(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2, split_bytes=64 * 1024)
    node = cluster[0]
    node.command("retention", RETENTION)
    node.con.execute("CREATE TABLE t (i INTEGER, v TEXT)")
    node.con.execute("BEGIN")
    node.con.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM range(20000) r(i)")
    node.con.execute("CREATE TABLE made AS SELECT * FROM t")
    node.con.execute("COMMIT")
    node.con.execute("UPDATE t SET v = 'y' WHERE i % 2 = 0")
    feed = assert_same_feed(cluster, "t")
    assert [row[3] for row in feed[:20000]] == list(range(20000))
    assert len({row[2] for row in feed}) == 2
    assert fold(feed) == content(node, "t")
    assert fold(changes(node, "made")) == content(node, "made")
    cluster.assert_equal()
    cluster.close()


def test_the_newest_bytes_are_kept_and_the_overrun_is_told(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER, v BLOB)")
    start = position(node)
    node.command("retention", str(SEGMENT_BYTES))
    for i in range(24):
        node.con.execute("INSERT INTO t SELECT ?, encode(repeat('x', 1000000))", [i])
    with pytest.raises(duckdb.CatalogException, match="quack_changes_set_retention"):
        changes(node, "t", start)
    kept = [row[4] for row in assert_same_feed(fed, "t")]
    assert kept == list(range(24))[-len(kept) :]
    assert 5 <= len(kept) <= 14
    states = {replica.command("changes") for replica in fed.replicas}
    assert len(states) == 1
    kept_bytes = int(states.pop().splitlines()[1].split("|")[1])
    assert SEGMENT_BYTES <= kept_bytes <= 3 * SEGMENT_BYTES
    tables = node.rows("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'changes_%'")
    assert tables[0][0] <= 3


def test_a_reader_finishes_while_what_it_reads_is_dropped(tmp_path: Path) -> None:
    """Segments that a statement still reads go, a checkpoint is made when it can, others are written."""
    replica = Replica(tmp_path / "n0.db", "reader-finishes", "n0", patience_ms=60_000)
    replica.command("retention", str(2 * SEGMENT_BYTES))
    replica.con.execute("CREATE TABLE t (i INTEGER, v BLOB)")
    insert = "INSERT INTO t SELECT {} + r, encode(repeat(chr(97 + {}), 400000)) FROM range(10) x(r)"
    for i in range(4):
        replica.con.execute(insert.format(10 * i, i))
    reader = replica.session()
    reader.execute("SELECT i, v FROM quack_changes('t', NULL, NULL)")
    rows = [reader.fetchone()]
    for i in range(4, 10):
        replica.con.execute(insert.format(10 * i, i))
        with contextlib.suppress(duckdb.Error):
            replica.command("checkpoint")
    rows += reader.fetchall()
    replica.command("checkpoint")
    assert [(i, v == bytes([97 + i // 10]) * 400000) for i, v in rows] == [
        (i, True) for i in range(rows[0][0], 40)
    ]
    assert min(row[4] for row in changes(replica, "t")) > 40
    replica.close()


def test_it_survives_image_checkpoint_and_restart(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2)
    first, second = cluster.replicas
    second.command("pause")
    first.command("retention", RETENTION)
    first.con.execute("CREATE TABLE t (i INTEGER, v TEXT)")
    first.con.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM range(6000) r(i)")
    first.con.execute("ALTER TABLE t RENAME TO u")
    first.command("checkpoint")
    first.con.execute("DELETE FROM u WHERE i >= 3")
    first.command("snapshot", str(tmp_path / "image"))
    second.command("install", str(tmp_path / "image"))
    second.command("resume")
    assert_same_feed(cluster, "u")
    second.close()

    cluster.replicas[1] = Replica(tmp_path / "n1.db", cluster.log, "n1")
    cluster[1].con.execute("UPDATE u SET v = 'y'")
    cluster[1].con.execute("INSERT INTO u VALUES (9, 'z')")
    assert fold(assert_same_feed(cluster, "u")) == content(cluster[1], "u")
    cluster.assert_equal()
    cluster.close()


def test_a_part_of_a_given_size_ends_at_an_entry(fed: Cluster) -> None:
    node = fed[0]
    node.con.execute("CREATE TABLE t (i INTEGER)")
    start = position(node)
    for i in range(6):
        node.con.execute("INSERT INTO t SELECT ? FROM range(10)", [i])
    seen: list[tuple] = []
    at = start
    steps = 0
    while at != position(node):
        end, rows, _ = node.rows("FROM quack_changes_end('t', ?, 15, NULL)", at)[0]
        part = changes(node, "t", at, end)
        assert len(part) == rows <= 20
        seen += part
        at = end
        steps += 1
    assert steps == 3
    assert seen == changes(node, "t", start)
    assert node.rows("SELECT rows, bytes FROM quack_changes_end('t', ?, NULL, NULL)", at) == [
        (0, 0)
    ]


#: Statements of one step of the random history; `k` and `n` are drawn numbers.
STATEMENTS = [
    "INSERT INTO t (i, v) VALUES ({n}, 'n{k}') ON CONFLICT DO NOTHING",
    "INSERT INTO t (i, v) SELECT r, 'r{k}' FROM range({n}, {n} + 7) x(r) ON CONFLICT DO NOTHING",
    "INSERT INTO t (i, v) VALUES ({n}, 'u{k}') ON CONFLICT DO UPDATE SET v = excluded.v",
    "UPDATE t SET v = v || '{k}' WHERE i % 5 = {k}",
    "UPDATE t SET i = i + 1000 WHERE i = {n}",
    "UPDATE t SET w = [{k}, {n}] WHERE i % 7 = {k}",
    "DELETE FROM t WHERE i % 11 = {k}",
    "MERGE INTO t USING (SELECT {n} AS i, 'm{k}' AS v) s ON t.i = s.i "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (i, v) VALUES (s.i, s.v)",
    "CREATE INDEX IF NOT EXISTS by_v ON t (v)",
    "DROP INDEX IF EXISTS by_v",
]


@pytest.mark.parametrize("key", ["i INTEGER PRIMARY KEY", "i INTEGER UNIQUE, j INTEGER DEFAULT 3"])
@pytest.mark.parametrize("seed", range(3))
def test_replaying_the_feed_gives_the_table(tmp_path: Path, key: str, seed: int) -> None:
    """Random statements, some of them in one transaction; the fold of all changes is the content, at every cut."""
    draw = random.Random(seed)
    cluster = Cluster(tmp_path, 2, split_bytes=1500)
    node = cluster[0]
    node.command("retention", RETENTION)
    node.con.execute(f"CREATE TABLE t ({key}, v TEXT, w INTEGER[])")
    folded: Counter = Counter()
    at = position(node)
    for step in range(60):
        together = draw.random() < 0.3
        if together:
            node.con.execute("BEGIN")
        for _ in range(draw.randint(2, 4) if together else 1):
            # An index that is made in the transaction that writes its columns is refused.
            choice = draw.choice(STATEMENTS[:-2] if together else STATEMENTS)
            node.con.execute(choice.format(k=draw.randint(0, 4), n=draw.randint(0, 60)))
        if together:
            node.con.execute(draw.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        if step == 40:
            node.con.execute("TRUNCATE t")
        if step % 10 == 9:
            end = position(node)
            folded = fold(hashable(changes(node, "t", at, end)), folded)
            assert folded == Counter(hashable(node.rows("SELECT * FROM t")))
            at = end
    assert_same_feed(cluster, "t")
    cluster.assert_equal()
    cluster.close()


def hashable(rows: list[tuple]) -> list[tuple]:
    return [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in rows]


@pytest.fixture
def grouped(tmp_path: Path) -> Any:
    """Three replicas that interleave the logs of groups each in its own way, with changes kept."""
    made = Cluster(tmp_path, 3)
    made[0].command("multiraft", "on")
    made[0].command("retention", RETENTION)
    for number, replica in enumerate(made.replicas):
        replica.command("hold_back", "", str(number + 1))
    yield made
    made.close()


def persist(con: duckdb.DuckDBPyConnection, action: Callable[[], None]) -> None:
    """As the server does: a rejected attempt is made again."""
    for _ in range(200):
        try:
            action()
            return
        except duckdb.Error as error:
            if not any(w in str(error) for w in ("onflict", "quack schema_changed", "Interrupted")):
                raise
            try:
                con.execute("ROLLBACK")
            except duckdb.Error:
                continue
    raise AssertionError("never committed")


def test_groups_change_in_the_middle_and_every_replica_tells_the_same(grouped: Cluster) -> None:
    """Transfers over shards and a pinned table from two nodes, while the table moves between numbers of groups."""
    node = grouped[0]
    node.con.execute(
        "CREATE TABLE account (k INTEGER PRIMARY KEY, v INTEGER) "
        "WITH (quack_shard_key = 'k', quack_initial_groups = 2)"
    )
    node.con.execute("CREATE TABLE log (k INTEGER, who INTEGER) WITH (quack_group = 'log-group')")
    persist(
        node.con, lambda: node.con.execute("INSERT INTO account SELECT r, 100 FROM range(12) x(r)")
    )
    start = {"account": [], "log": []}

    def transfer(replica: Replica, who: int) -> None:
        draw = random.Random(who)
        con = replica.session()
        for i in range(25):
            a, b = draw.sample(range(12), 2)

            def once(a: int = a, b: int = b, i: int = i) -> None:
                con.execute("BEGIN")
                con.execute("UPDATE account SET v = v - 1 WHERE k = ?", [a])
                con.execute("UPDATE account SET v = v + 1 WHERE k = ?", [b])
                con.execute("INSERT INTO log VALUES (?, ?)", [i, who])
                con.execute("COMMIT")

            persist(con, once)

    threads = [
        threading.Thread(target=transfer, args=(grouped[who], who), daemon=True) for who in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for count in (3, 2):
        persist(
            node.con,
            lambda count=count: node.con.execute(f"ALTER TABLE account SET GROUPS {count}"),
        )
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    grouped.assert_equal()
    cut = position(node)
    for table in start:
        feeds = [changes(replica, table, None, cut) for replica in grouped.replicas]
        assert len({frozenset(Counter(feed).items()) for feed in feeds}) == 1
        by_key = [per_key(feed) for feed in feeds]
        assert by_key[1] == by_key[0] and by_key[2] == by_key[0]
        for replica, feed in zip(grouped.replicas, feeds, strict=True):
            assert fold(feed) == content(replica, table)
    assert len({row[1] for row in changes(node, "account")}) > 1
    with pytest.raises(duckdb.InvalidInputException, match="several groups"):
        changes(node, "account", 5)


def test_a_large_transaction_over_groups_is_one_commit(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2, split_bytes=64 * 1024)
    node = cluster[0]
    node.command("multiraft", "on")
    node.command("retention", RETENTION)
    node.con.execute(
        "CREATE TABLE t (i INTEGER PRIMARY KEY, v TEXT)"
        " WITH (quack_shard_key = 'i', quack_initial_groups = 3)"
    )
    node.con.execute("INSERT INTO t SELECT i, md5(i::VARCHAR) FROM range(10000) r(i)")
    node.con.execute("UPDATE t SET v = 'y' WHERE i < 10")
    node.con.execute("UPDATE t SET v = md5(v) WHERE i % 2 = 0")
    cluster.assert_equal()
    for replica in cluster.replicas:
        feed = changes(replica, "t")
        assert fold(feed) == content(node, "t")
        assert len({row[2] for row in feed}) == 3
    cluster.close()


def per_key(feed: list[tuple]) -> dict[Any, list[tuple]]:
    keys: dict[Any, list[tuple]] = {}
    for row in feed:
        keys.setdefault(row[4:] if row[0] == "insert" else row[4], []).append(row)
    return keys


def test_entries_planned_before_it_was_on_are_left_out_alike(tmp_path: Path) -> None:
    """Another group's entries reach replicas before or after the switch; which of them count depends on the log."""
    cluster = Cluster(tmp_path, 3)
    node = cluster[0]
    node.command("multiraft", "on")
    node.con.execute("CREATE TABLE t (i INTEGER) WITH (quack_group = 'g')")
    node.con.execute("INSERT INTO t VALUES (0)")
    node.con.execute("BEGIN")
    node.con.execute("INSERT INTO t VALUES (1)")
    cluster[1].command("wait")
    cluster[1].command("retention", RETENTION)
    node.con.execute("COMMIT")
    node.command("wait")
    node.con.execute("INSERT INTO t VALUES (2)")
    assert [kinds(replica, "t") for replica in cluster.replicas] == [[("insert", 2)]] * 3
    states = set()
    for replica in cluster.replicas:
        states.add(replica.command("changes"))
    assert len(states) == 1
    cluster.close()

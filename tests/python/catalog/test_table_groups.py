"""Tables in groups: several logs, applied in another order on every replica, still make one state (cpp/GROUPS.md)."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from catalog_replica import Cluster, Replica


def interleaved(directory: Path, split_bytes: int = 0) -> Cluster:
    """Three replicas that interleave the groups' logs each in its own way."""
    made = Cluster(directory, 3, split_bytes)
    assert made[0].command("multiraft", "on") == "ok"
    for number, replica in enumerate(made.replicas):
        replica.command("hold_back", "", str(number + 1))
    return made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = interleaved(tmp_path)
    yield made
    made.close()


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Cluster]:
    """Transactions above 16 KiB do not fit into entries."""
    made = interleaved(tmp_path, 16 * 1024)
    yield made
    made.close()


def groups(replica: Replica) -> dict[str, list[str]]:
    """Groups of each placed table, as the replica knows them."""
    replica.command("wait")
    placed = {}
    for line in replica.command("groups").splitlines():
        table, *rest = line.split("|")
        if table != "group":
            placed[table] = [name for name in rest[0].split(",") if name]
    return placed


def persist(replica: Replica, statement: str) -> None:
    """As the server does: a rejected attempt is made again."""
    for _ in range(200):
        try:
            replica.con.execute(statement)
            return
        except duckdb.Error as error:
            if not any(
                word in str(error) for word in ("onflict", "quack schema_changed", "Interrupted")
            ):
                raise
    raise AssertionError(f"never committed: {statement}")


def test_statements_are_refused_until_they_are_switched_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    node = cluster[0].con
    node.execute("CREATE TABLE t (i INTEGER)")
    for statement in [
        "CREATE TABLE u (i INTEGER) WITH (quack_group = 'g')",
        "ALTER TABLE t SET GROUP 'g'",
    ]:
        with pytest.raises(duckdb.NotImplementedException, match="quack_multiraft_sql_set_enabled"):
            node.execute(statement)
    cluster.close()


def test_a_pinned_table_lives_in_its_group(cluster: Cluster) -> None:
    node = cluster[0]
    node.con.execute(
        "CREATE TABLE orders (i INTEGER PRIMARY KEY, v TEXT) WITH (quack_group = 'orders-group')"
    )
    assert groups(node) == {"main.orders": ["orders-group"]}
    node.con.execute("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    node.con.execute("UPDATE orders SET v = 'c' WHERE i = 2")
    node.con.execute("DELETE FROM orders WHERE i = 1")
    cluster.assert_equal()
    assert cluster[2].rows("SELECT * FROM orders") == [(2, "c")]
    node.con.execute("DROP TABLE orders")
    cluster.assert_equal()
    assert groups(cluster[1]) == {}


def test_a_sharded_table_spreads_its_rows(cluster: Cluster) -> None:
    node = cluster[0]
    node.con.execute(
        "CREATE TABLE events (tenant BIGINT, n INTEGER, PRIMARY KEY (tenant, n))"
        " WITH (quack_shard_key = 'tenant', quack_initial_groups = 8)"
    )
    assert groups(node)["main.events"] == [f"shard-{i}" for i in range(8)]
    node.con.execute("INSERT INTO events SELECT i % 50, i FROM range(1000) r(i)")
    node.con.execute("UPDATE events SET n = n + 1000 WHERE tenant = 7")
    node.con.execute("UPDATE events SET tenant = tenant + 100 WHERE tenant < 5")
    node.con.execute("DELETE FROM events WHERE tenant % 3 = 0")
    expected = duckdb.connect()
    expected.execute("CREATE TABLE events AS SELECT i % 50 AS tenant, i AS n FROM range(1000) r(i)")
    expected.execute("UPDATE events SET n = n + 1000 WHERE tenant = 7")
    expected.execute("UPDATE events SET tenant = tenant + 100 WHERE tenant < 5")
    expected.execute("DELETE FROM events WHERE tenant % 3 = 0")
    cluster.assert_equal()
    for replica in cluster.replicas:
        assert (
            replica.rows("SELECT tenant, n FROM events ORDER BY ALL")
            == expected.execute("SELECT * FROM events ORDER BY ALL").fetchall()
        )


def test_a_transaction_over_groups_is_whole_or_not_at_all(cluster: Cluster) -> None:
    a, b, _ = cluster.replicas
    for name in ("left", "right"):
        a.con.execute(
            f"CREATE TABLE \"{name}\" (i INTEGER PRIMARY KEY, v INTEGER) WITH (quack_group = '{name}')"
        )
        a.con.execute(f'INSERT INTO "{name}" VALUES (1, 100)')
    b.command("wait")
    a.con.execute("BEGIN")
    a.con.execute('UPDATE "left" SET v = v - 1')
    a.con.execute('UPDATE "right" SET v = v + 1')
    b.con.execute('UPDATE "right" SET v = 7')
    with pytest.raises(duckdb.Error, match="quack (conflict|schema_changed)"):
        a.con.execute("COMMIT")
    cluster.assert_equal()
    assert b.rows('SELECT l.v, r.v FROM "left" l, "right" r') == [(100, 7)]
    a.con.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    a.con.execute("BEGIN")
    a.con.execute('UPDATE "left" SET v = v - 1')
    a.con.execute('UPDATE "right" SET v = v + 1')
    a.con.execute("CREATE TABLE moods (m mood)")
    a.con.execute("COMMIT")
    cluster.assert_equal()
    assert b.rows('SELECT l.v, r.v FROM "left" l, "right" r') == [(99, 8)]
    with pytest.raises(duckdb.DependencyException, match='table "moods" depends on type "mood"'):
        b.con.execute("DROP TYPE mood")


def test_a_table_moves_between_groups_without_its_rows(cluster: Cluster) -> None:
    node = cluster[0]
    node.con.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER)")
    node.con.execute("INSERT INTO t SELECT i, i FROM range(100) r(i)")
    node.con.execute("ALTER TABLE cp.main.t SET GROUP 'other';")
    assert groups(node) == {"main.t": ["other"]}
    node.con.execute("UPDATE t SET v = v + 1")
    node.con.execute("ALTER TABLE t SET GROUP DEFAULT")
    node.con.execute("UPDATE t SET v = v + 1")
    node.con.execute("ALTER TABLE IF EXISTS missing SET GROUP 'other'; SELECT 1")
    cluster.assert_equal()
    assert groups(cluster[2]) == {}
    assert cluster[2].rows("SELECT sum(v - k), count(*) FROM t") == [(200, 100)]
    with pytest.raises(duckdb.BinderException, match="not sharded"):
        node.con.execute("ALTER TABLE t SET GROUPS 4")


def test_a_place_follows_its_table_within_a_transaction(cluster: Cluster) -> None:
    node = cluster[0]
    node.con.execute("CREATE TABLE t (k INTEGER)")
    node.con.execute("BEGIN")
    node.con.execute("ALTER TABLE t SET GROUP 'g'")
    node.con.execute("ALTER TABLE t RENAME TO u")
    node.con.execute("CREATE TABLE v (k INTEGER) WITH (quack_group = 'v')")
    node.con.execute("ALTER TABLE v RENAME TO w")
    node.con.execute("CREATE TABLE x (k INTEGER) WITH (quack_group = 'x')")
    node.con.execute("DROP TABLE x")
    node.con.execute("COMMIT")
    node.con.execute("BEGIN")
    node.con.execute("ALTER TABLE u ADD COLUMN l INTEGER")
    with pytest.raises(duckdb.BinderException, match="created or altered in this transaction"):
        node.con.execute("ALTER TABLE u SET GROUP 'h'")
    node.con.execute("ROLLBACK")
    assert groups(node) == {"main.u": ["g"], "main.w": ["v"]}
    node.con.execute("CREATE TABLE x (k INTEGER)")
    node.con.execute("CREATE OR REPLACE TABLE u (k INTEGER)")
    assert groups(node) == {"main.w": ["v"]}
    cluster.assert_equal()


def test_a_number_of_groups_follows_its_table_within_a_transaction(cluster: Cluster) -> None:
    node = cluster[0]
    for statement in [
        "CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER)"
        " WITH (quack_shard_key = 'k', quack_initial_groups = 2)",
        "INSERT INTO t SELECT i, 0 FROM range(20) r(i)",
        "BEGIN",
        "UPDATE t SET v = 1 WHERE k < 10",
        "ALTER TABLE t SET GROUPS 3",
        "ALTER TABLE t RENAME TO u",
        "INSERT INTO u VALUES (20, 1)",
        "COMMIT",
        "UPDATE u SET v = v + 1",
    ]:
        node.con.execute(statement)
    assert groups(cluster[1]) == {"main.u": ["shard-0", "shard-1", "shard-2"]}
    cluster.assert_equal()
    assert cluster[2].rows("SELECT count(*), sum(v) FROM u") == [(21, 32)]
    with pytest.raises(duckdb.ConstraintException, match="primary key"):
        node.con.execute("INSERT INTO u VALUES (3, 3), (30, 3)")
    with pytest.raises(duckdb.Error, match="shard key"):
        node.con.execute("ALTER TABLE u RENAME COLUMN k TO l")


def test_groups_are_resized_under_load(cluster: Cluster) -> None:
    cluster[0].con.execute(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, n INTEGER) WITH (quack_shard_key = 'k', quack_initial_groups = 4)"
    )
    cluster[0].con.execute("INSERT INTO t SELECT i, 0 FROM range(20) r(i)")
    cluster.assert_equal()
    stop = threading.Event()
    done = [0, 0]

    def write(number: int) -> None:
        chance = random.Random(number)
        while not stop.is_set() or done[number] < 20:
            persist(cluster[number + 1], f"UPDATE t SET n = n + 1 WHERE k = {chance.randrange(20)}")
            done[number] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for count in (16, 2, 8):
        persist(cluster[0], f"ALTER TABLE t SET GROUPS {count}")
    stop.set()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive()
    cluster.assert_equal()
    assert len(groups(cluster[1])["main.t"]) == 8
    assert cluster[2].rows("SELECT sum(n), count(*) FROM t") == [(sum(done), 20)]


@pytest.mark.parametrize("seed", [1, 2])
def test_transfers_keep_their_sum_on_every_replica(cluster: Cluster, seed: int) -> None:
    """Readers see the sum at every moment: a transfer between two groups is never half visible."""
    cluster[0].con.execute(
        "CREATE TABLE accounts (k INTEGER PRIMARY KEY, v INTEGER)"
        " WITH (quack_shard_key = 'k', quack_initial_groups = 8)"
    )
    cluster[0].con.execute("INSERT INTO accounts SELECT i, 100 FROM range(12) r(i)")
    cluster.assert_equal()
    failures: list[str] = []
    commits = [0, 0, 0]

    def transfer(number: int) -> None:
        chance = random.Random(seed * 10 + number)
        session = cluster[number].session()
        try:
            for _ in range(40):
                giver, taker = chance.sample(range(12), 2)
                try:
                    session.execute("BEGIN")
                    session.execute(f"UPDATE accounts SET v = v - 1 WHERE k = {giver}")
                    session.execute(f"UPDATE accounts SET v = v + 1 WHERE k = {taker}")
                    session.execute("COMMIT")
                    commits[number] += 1
                except duckdb.Error as error:
                    # Interrupted: an entry needed what the transaction held.
                    if not any(
                        word in str(error).lower()
                        for word in ("conflict", "schema_changed", "interrupt")
                    ):
                        failures.append(str(error))
                    with contextlib.suppress(duckdb.Error):
                        session.execute("ROLLBACK")
        except duckdb.Error as error:
            failures.append(str(error))

    def read(number: int, stop: threading.Event) -> None:
        session = cluster[number].session()
        while not stop.is_set():
            try:
                total = session.execute("SELECT sum(v) FROM accounts").fetchall()
            except duckdb.Error as error:
                if "conflict" not in str(error).lower() and "interrupt" not in str(error).lower():
                    failures.append(str(error))
                continue
            if total != [(1200,)]:
                failures.append(f"replica {number} saw {total}")

    stop = threading.Event()
    readers = [threading.Thread(target=read, args=(number, stop)) for number in range(3)]
    writers = [threading.Thread(target=transfer, args=(number,)) for number in range(3)]
    for thread in [*readers, *writers]:
        thread.start()
    for thread in writers:
        thread.join(120)
    stop.set()
    for thread in readers:
        thread.join(60)
    assert failures == []
    assert sum(commits) > 10
    cluster.assert_equal()
    assert cluster[1].rows("SELECT sum(v), count(*) FROM accounts") == [(1200, 12)]


REFUSED = [
    ("(i INTEGER) WITH (quack_group = 'a', quack_shard_key = 'i')", "use one or the other"),
    ("(i INTEGER) WITH (quack_group = '')", "must not be empty"),
    ("(i INTEGER) WITH (quack_group = orders)", "single quotes"),
    ("(i INTEGER) WITH (quack_colour = 'red')", "known are: quack_group"),
    ("(i INTEGER) WITH (quack_shard_key = 'i')", "needs quack_initial_groups"),
    ("(i INTEGER) WITH (quack_initial_groups = 4)", "needs quack_shard_key"),
    ("(i INTEGER) WITH (quack_shard_key = 'j', quack_initial_groups = 4)", "its columns are: i"),
    ("(i INTEGER) WITH (quack_shard_key = 'i', quack_initial_groups = 0)", "from 1 to 256"),
    ("(i INTEGER) WITH (quack_shard_key = 'i', quack_initial_groups = 1000)", "from 1 to 256"),
    ("(i INTEGER) WITH (quack_shard_key = 'i, i', quack_initial_groups = 2)", "twice"),
    ("(i DOUBLE) WITH (quack_shard_key = 'i', quack_initial_groups = 2)", "has type DOUBLE"),
    (
        "(i INTEGER PRIMARY KEY, j INTEGER) WITH (quack_shard_key = 'j', quack_initial_groups = 2)",
        "does not contain shard key column",
    ),
    ("(i INTEGER REFERENCES parent) WITH (quack_group = 'g')", "both must live in the same group"),
]


@pytest.mark.parametrize(("definition", "reason"), REFUSED)
def test_what_cannot_be_placed_is_refused_with_the_reason(
    cluster: Cluster, definition: str, reason: str
) -> None:
    cluster[0].con.execute("CREATE TABLE parent (i INTEGER PRIMARY KEY)")
    with pytest.raises(duckdb.BinderException, match=reason):
        cluster[0].con.execute(f"CREATE TABLE t {definition}")
    assert groups(cluster[0]) == {}


def test_shard_keys_stay_as_they_are(cluster: Cluster) -> None:
    node = cluster[0].con
    node.execute(
        "CREATE TABLE t (k INTEGER, v INTEGER) WITH (quack_shard_key = 'k', quack_initial_groups = 2)"
    )
    for change in ["DROP COLUMN k", "RENAME COLUMN k TO l", "ALTER COLUMN k TYPE BIGINT"]:
        with pytest.raises(duckdb.Error, match="shard key"):
            node.execute(f"ALTER TABLE t {change}")
    with pytest.raises(duckdb.BinderException, match="does not contain shard key"):
        node.execute("CREATE UNIQUE INDEX u ON t (v)")
    node.execute("ALTER TABLE t RENAME TO u")
    node.execute("INSERT INTO u VALUES (1, 2)")
    node.execute("ALTER TABLE u ADD COLUMN w INTEGER DEFAULT 5")
    node.execute("INSERT INTO u VALUES (2, 2, 2)")
    cluster.assert_equal()
    assert groups(cluster[1]) == {"main.u": ["shard-0", "shard-1"]}
    assert cluster[2].rows("SELECT * FROM u ORDER BY k") == [(1, 2, 5), (2, 2, 2)]


@pytest.mark.parametrize(
    "change",
    [
        "CREATE UNIQUE INDEX u ON t (v)",
        "ALTER TABLE t ADD PRIMARY KEY (v)",
        "ALTER TABLE t DROP COLUMN k",
        "ALTER TABLE t RENAME COLUMN k TO l",
        "ALTER TABLE t ALTER COLUMN k TYPE DOUBLE",
    ],
)
def test_shard_keys_stay_as_they_are_from_the_first_transaction_on(
    cluster: Cluster, change: str
) -> None:
    node = cluster[0].con
    node.execute("BEGIN")
    node.execute(
        "CREATE TABLE s (k INTEGER, v INTEGER) WITH (quack_shard_key = 'k', quack_initial_groups = 4)"
    )
    node.execute("ALTER TABLE s RENAME TO t")
    with pytest.raises(duckdb.Error, match="shard key"):
        node.execute(change)
        node.execute("COMMIT")
    with contextlib.suppress(duckdb.Error):
        node.execute("ROLLBACK")
    assert groups(cluster[0]) == {}
    assert [row[1] for row in cluster.assert_equal()] == ["main"]


@pytest.mark.parametrize(
    "change", ["CREATE UNIQUE INDEX x ON u (v)", "ALTER TABLE u ADD PRIMARY KEY (v)"]
)
def test_unique_keys_hold_the_shard_key_of_what_the_table_is(cluster: Cluster, change: str) -> None:
    """Under a new name it is as sharded as before; another table under the old name is not."""
    node = cluster[0].con
    node.execute(
        "CREATE TABLE t (k INTEGER, v INTEGER) WITH (quack_shard_key = 'k', quack_initial_groups = 4)"
    )
    node.execute("BEGIN")
    node.execute("ALTER TABLE t RENAME TO u")
    with pytest.raises(duckdb.Error, match="does not contain shard key"):
        node.execute(change)
        node.execute("COMMIT")
    with contextlib.suppress(duckdb.Error):
        node.execute("ROLLBACK")
    node.execute("BEGIN")
    node.execute("ALTER TABLE t RENAME TO u")
    node.execute(change.replace("(v)", "(v, k)"))
    node.execute("COMMIT")
    assert len(groups(cluster[1])["main.u"]) == 4
    node.execute("BEGIN")
    node.execute("CREATE OR REPLACE TABLE u (k INTEGER, v INTEGER)")
    node.execute(change)
    node.execute("COMMIT")
    node.execute("INSERT INTO u VALUES (1, 1)")
    with pytest.raises(duckdb.ConstraintException, match="Duplicate key"):
        node.execute("INSERT INTO u VALUES (2, 1)")
    assert groups(cluster[1]) == {}
    cluster.assert_equal()


PARENT = "CREATE TABLE parent (i INTEGER PRIMARY KEY) WITH (quack_group = 'family')"
CHILD = "CREATE TABLE child (i INTEGER REFERENCES Parent)"


def test_foreign_keys_within_a_group(tmp_path: Path) -> None:
    """What they point to is checked in the group's log, by every replica alike, also when it starts again."""
    cluster = interleaved(tmp_path)
    a, b, _ = cluster.replicas
    a.con.execute(PARENT)
    a.con.execute(CHILD + " WITH (quack_group = 'family')")
    a.con.execute("INSERT INTO parent SELECT i FROM range(10) r(i)")
    a.con.execute("INSERT INTO child VALUES (1)")
    b.command("wait")
    # Neither sees what the other does before the entries are in the log.
    a.con.execute("BEGIN")
    a.con.execute("INSERT INTO child VALUES (5)")
    b.con.execute("DELETE FROM parent WHERE i = 5")
    with pytest.raises(duckdb.Error, match="foreign key|onflict"):
        a.con.execute("COMMIT")
    b.con.execute("BEGIN")
    b.con.execute("DELETE FROM parent WHERE i = 6")
    a.con.execute("INSERT INTO child VALUES (6)")
    with pytest.raises(duckdb.Error, match="foreign key|onflict"):
        b.con.execute("COMMIT")
    cluster.assert_equal()
    assert b.rows("FROM child ORDER BY ALL") == [(1,), (6,)]
    a.con.execute("BEGIN")
    a.con.execute("ALTER TABLE child SET GROUP 'moved'")
    a.con.execute("ALTER TABLE parent SET GROUP 'moved'")
    a.con.execute("COMMIT")
    assert a.command("checkpoint") == "ok"
    a.con.execute("INSERT INTO child VALUES (7)")
    with pytest.raises(duckdb.ConstraintException, match="foreign key"):
        a.con.execute("INSERT INTO child VALUES (5)")
    hashes = cluster.assert_equal()
    path, log = a.path, a.log
    a.close()
    again = Replica(path, log, "n0")
    cluster.replicas[0] = again
    assert again.hashes() == hashes
    assert groups(again) == {"main.child": ["moved"], "main.parent": ["moved"]}
    with pytest.raises(duckdb.ConstraintException, match="foreign key"):
        again.con.execute("DELETE FROM parent WHERE i = 7")
    snapshot = tmp_path / "image"
    again.command("checkpoint")
    again.command("snapshot", str(snapshot))
    assert b.command("install", str(snapshot)) == "ok"
    b.con.execute("DELETE FROM child WHERE i = 7")
    b.con.execute("DELETE FROM parent WHERE i = 7")
    cluster.assert_equal()
    cluster.close()


APART = {
    "made in one transaction": ["BEGIN", PARENT, CHILD, "COMMIT"],
    "made in one transaction, sharded": [
        "BEGIN",
        "CREATE TABLE parent (i INTEGER PRIMARY KEY)"
        " WITH (quack_shard_key = 'i', quack_initial_groups = 2)",
        CHILD,
        "COMMIT",
    ],
    "the parent moves before": [
        "CREATE TABLE parent (i INTEGER PRIMARY KEY)",
        "BEGIN",
        "ALTER TABLE parent SET GROUP 'g'",
        CHILD,
        "COMMIT",
    ],
    "the parent moves after": [
        "CREATE TABLE parent (i INTEGER PRIMARY KEY)",
        CHILD,
        "BEGIN",
        "ALTER TABLE parent SET GROUP 'g'",
        "COMMIT",
    ],
    "planning does not look": [
        "SET disabled_optimizers = 'extension'",
        "CREATE TABLE parent (i INTEGER PRIMARY KEY)",
        "ALTER TABLE parent SET GROUP 'g'",
        CHILD,
    ],
    "the parent has been renamed": [
        "BEGIN",
        "CREATE TABLE elder (i INTEGER PRIMARY KEY) WITH (quack_group = 'g')",
        "ALTER TABLE elder RENAME TO parent",
        CHILD,
        "COMMIT",
    ],
}


@pytest.mark.parametrize("statements", APART.values(), ids=APART.keys())
def test_foreign_keys_never_leave_a_group(cluster: Cluster, statements: list[str]) -> None:
    node = cluster[0].con
    refused = ""
    for statement in statements:
        try:
            node.execute(statement)
        except duckdb.Error as error:
            refused = str(error)
            break
    with contextlib.suppress(duckdb.Error):
        node.execute("ROLLBACK")
    assert "both must live in the same group" in refused
    cluster.assert_equal()


@pytest.mark.parametrize("place", ["", " WITH (quack_group = 'family')"])
@pytest.mark.parametrize("move", ["SET GROUP 'h'", "SET GROUP DEFAULT"])
@pytest.mark.parametrize("creates_first", [True, False])
def test_two_transactions_do_not_part_a_family(
    cluster: Cluster, place: str, move: str, creates_first: bool
) -> None:
    """One makes the child, the other moves the parent; neither sees the other before COMMIT."""
    a, b, _ = cluster.replicas
    a.con.execute(PARENT.split(" WITH")[0] + place)
    b.command("wait")
    statements = [CHILD + place, "ALTER TABLE parent " + move]
    first, second = statements if creates_first else reversed(statements)
    a.con.execute("BEGIN")
    a.con.execute(first)
    b.con.execute(second)
    with pytest.raises(duckdb.Error, match="same group|schema_changed"):
        a.con.execute("COMMIT")
    cluster.assert_equal()
    placed = groups(b)
    assert creates_first or placed.get("main.child") == placed.get("main.parent")


def test_a_family_is_made_in_one_transaction(cluster: Cluster) -> None:
    node = cluster[0].con
    for statement in [
        "BEGIN",
        PARENT,
        CHILD + " WITH (quack_group = 'family')",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (1)",
        "COMMIT",
    ]:
        node.execute(statement)
    assert groups(cluster[1]) == {"main.child": ["family"], "main.parent": ["family"]}
    # A table that is made anew under the old name counts, wherever the old one was.
    node.execute("DROP TABLE child")
    for statement in ["BEGIN", "DROP TABLE parent", PARENT.split(" WITH")[0], CHILD, "COMMIT"]:
        node.execute(statement)
    assert groups(cluster[1]) == {}
    cluster.assert_equal()


def test_keyless_rows_and_repeated_values(cluster: Cluster) -> None:
    node = cluster[0]
    node.con.execute(
        "CREATE TABLE t (k INTEGER, v INTEGER) WITH (quack_shard_key = 'k', quack_initial_groups = 4)"
    )
    node.con.execute("INSERT INTO t SELECT i % 4, i % 2 FROM range(40) r(i)")
    node.con.execute("DELETE FROM t WHERE v = 1 AND k = 1")
    node.con.execute("UPDATE t SET v = v + 1, k = k + 1")
    cluster.assert_equal()
    assert cluster[1].rows("SELECT k, v, count(*) FROM t GROUP BY ALL ORDER BY ALL") == [
        (1, 1, 10),
        (3, 1, 10),
        (4, 2, 10),
    ]


def test_a_table_made_from_a_query_is_placed(cluster: Cluster) -> None:
    node = cluster[0].con
    node.execute(
        "CREATE TABLE t WITH (quack_shard_key = 'k', quack_initial_groups = 4)"
        " AS SELECT i AS k, 'x' AS v FROM range(100) r(i)"
    )
    node.execute("UPDATE t SET v = 'y' WHERE k < 50")
    cluster.assert_equal()
    assert cluster[2].rows("SELECT v, count(*) FROM t GROUP BY v ORDER BY v") == [
        ("x", 50),
        ("y", 50),
    ]


PLACED = """CREATE TABLE shards (id BIGINT PRIMARY KEY, tenant BIGINT, text VARCHAR);
    CREATE TABLE pinned (id BIGINT, text VARCHAR);
    CREATE TABLE plain (id BIGINT, text VARCHAR)"""
MANY = "SELECT i AS id, {0} + i % 5 AS tenant, md5(i::VARCHAR) AS text FROM range({1}, {2}) r(i)"


def place(cluster: Cluster) -> None:
    for statement in PLACED.split(";"):
        cluster[0].con.execute(statement)
    persist(cluster[0], "ALTER TABLE pinned SET GROUP 'lane'")
    cluster[0].con.execute("DROP TABLE shards")
    cluster[0].con.execute(
        "CREATE TABLE shards (id BIGINT PRIMARY KEY, tenant BIGINT, text VARCHAR)"
        " WITH (quack_shard_key = 'id', quack_initial_groups = 4)"
    )


def open_streams(replica: Replica) -> str:
    """How many large transactions are open on the replica, and their bytes."""
    replica.command("wait")
    return replica.command("streams")


def test_large_transactions_over_groups(large: Cluster) -> None:
    """More than fits into an entry, in shards, a pinned table and the root group: as plain DuckDB does it."""
    plain = duckdb.connect()
    plain.execute(PLACED)
    place(large)
    transactions = [
        ["INSERT INTO shards " + MANY.format(0, 0, 4000)],
        ["UPDATE shards SET text = text || '!' WHERE id % 3 = 0"],
        [
            "INSERT INTO pinned SELECT id, text FROM shards",
            "INSERT INTO plain SELECT id, text FROM shards WHERE id < 10",
            "DELETE FROM shards WHERE id % 2 = 0",
        ],
        # A row that changes its shard, and rows that go and come back under the same key.
        ["UPDATE shards SET id = id + 100000 WHERE id % 5 = 1"],
        [
            "DELETE FROM shards WHERE tenant = 2",
            "INSERT INTO shards " + MANY.format(7, 20000, 22000),
        ],
        ["DELETE FROM pinned", "INSERT INTO plain SELECT id, text FROM shards"],
        # Small enough to be spread again.
        ["INSERT INTO shards VALUES (-1, 1, 'a'), (-2, 2, 'b'), (-3, 3, 'c'), (-4, 4, 'd')"],
    ]
    for number, statements in enumerate(transactions):
        for session in (plain, large[number % 3].con):
            session.execute("BEGIN")
            for statement in statements:
                session.execute(statement)
            session.execute("COMMIT")
        for table in ("shards", "pinned", "plain"):
            query = f"SELECT * FROM {table} ORDER BY ALL"
            large[number % 3].command("wait")
            assert large[number % 3].rows(query) == plain.execute(query).fetchall(), statements
        large.assert_equal()
    assert [open_streams(replica) for replica in large.replicas] == ["0|0"] * 3
    plain.close()


def test_a_rejected_large_transaction_over_groups_leaves_nothing(large: Cluster) -> None:
    place(large)
    node = large[0]
    node.con.execute("INSERT INTO shards VALUES (3999, 1, 'there')")
    large[1].command("wait")
    other = large[1].session()
    other.execute("BEGIN")
    other.execute("INSERT INTO plain VALUES (1, 'with it')")
    # Nobody sees the clash before the entry is applied: the other one comes in between.
    other.execute("INSERT INTO shards " + MANY.format(0, 0, 3999))
    node.con.execute("INSERT INTO shards VALUES (77, 1, 'in between')")
    with pytest.raises(duckdb.Error, match="77"):
        other.execute("COMMIT")
    large.assert_equal()
    assert node.rows("SELECT id FROM shards ORDER BY id") == [(77,), (3999,)]
    assert node.rows("SELECT count(*) FROM plain") == [(0,)]
    assert [open_streams(replica) for replica in large.replicas] == ["0|0"] * 3
    other.close()


def test_large_transactions_over_groups_among_small_ones(large: Cluster) -> None:
    """No locks stay, nobody starves, and every transaction is whole."""
    place(large)
    large[0].con.execute("INSERT INTO shards " + MANY.format(0, 0, 2000))
    for replica in large.replicas:
        replica.command("wait")  # an UPDATE finds the rows
    stop = threading.Event()
    failures: list[BaseException] = []

    def small(replica: Replica) -> None:
        try:
            while not stop.is_set():
                number = random.randrange(2000)
                persist(
                    replica,
                    f"UPDATE shards SET tenant = tenant + 1 WHERE id IN ({number}, {number + 1})",
                )
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=small, args=(replica,)) for replica in large.replicas[:2]]
    for thread in threads:
        thread.start()
    try:
        for turn in range(4):
            persist(large[2], f"UPDATE shards SET text = md5(id::VARCHAR || '{turn}')")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    large.assert_equal()
    assert large[0].rows("SELECT count(*) FROM shards WHERE text = md5(id::VARCHAR || '3')") == [
        (2000,)
    ]
    assert [open_streams(replica) for replica in large.replicas] == ["0|0"] * 3


def test_what_is_prepared_survives_a_restart(tmp_path: Path) -> None:
    """A replica that starts again replays all logs, in an order of its own, to the same state."""
    log_file = str(tmp_path / "log")
    first = Replica(tmp_path / "a.db", "restart", "a", log_file=log_file)
    assert first.command("multiraft", "on") == "ok"
    first.con.execute(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER) WITH (quack_shard_key = 'k', quack_initial_groups = 4)"
    )
    first.con.execute("INSERT INTO t SELECT i, 0 FROM range(50) r(i)")
    assert first.command("checkpoint") == "ok"
    first.con.execute("UPDATE t SET v = v + 1")
    first.con.execute("ALTER TABLE t SET GROUPS 2")
    first.con.execute("UPDATE t SET v = v + 1")
    expected = first.hashes()
    placed = groups(first)
    first.close()
    again = Replica(tmp_path / "a.db", "restart", "a", log_file=log_file)
    assert again.hashes() == expected
    assert groups(again) == placed
    again.con.execute("UPDATE t SET v = v + 1")
    assert again.rows("SELECT sum(v) FROM t") == [(150,)]
    fresh = Replica(tmp_path / "b.db", "restart", "b", log_file=log_file)
    fresh.command("hold_back", "", "9")
    assert fresh.hashes() == again.hashes()
    fresh.close()
    again.close()

"""Goal: tables in groups on three real voters: the SQL of groups, transactions over them, resizing under kills."""

from __future__ import annotations

import contextlib
import pathlib
import random
import subprocess
import sys
import threading
from collections.abc import Iterator

import duckdb
import pytest

import quack
from probes import data_dir, query, tails, wait_until
from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster

ENABLE = "SELECT quack_multiraft_sql_set_enabled(true)"
TABLES = "SELECT table_schema, table_name, shard_key, slots, \"group\" FROM quack_table_groups('cp') ORDER BY ALL"
RETRYABLE = ("conflict", "schema_changed")


@pytest.fixture(scope="module")
def groups(cluster: LocalCluster) -> LocalCluster:
    """Three voters on which tables may be placed."""
    session = cluster.connect()
    session.execute(ENABLE)
    session.close()
    return cluster


@pytest.fixture
def session(groups: LocalCluster) -> Iterator[duckdb.DuckDBPyConnection]:
    """A client of a node that does not lead the root group."""
    leader = groups.wait_leader()
    opened = groups.connect(next(node for node in groups.nodes if node is not leader))
    yield opened
    opened.close()


def placed(session: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Groups that the table lives in."""
    rows = session.execute(
        "SELECT \"group\" FROM quack_table_groups('cp') WHERE table_name = ? ORDER BY ALL", [table]
    )
    return [name for (name,) in rows.fetchall()]


def assert_equal(cluster: LocalCluster, timeout_s: float = 90) -> None:
    """Every node comes to hold the same."""

    def states() -> list[object]:
        return [
            query(
                cluster,
                node,
                "SELECT * EXCLUDE (applied_index) FROM quack_state_hash('cp') ORDER BY ALL",
            )
            for node in cluster.nodes
        ]

    def same() -> bool:
        seen = states()
        return seen[0] is not None and all(state == seen[0] for state in seen)

    wait_until(same, lambda: f"equal hashes: {states()}\n{tails(cluster)}", timeout_s)


def test_statements_are_refused_while_the_switch_is_off(cluster: LocalCluster) -> None:
    session = cluster.connect()
    session.execute("SELECT quack_multiraft_sql_set_enabled(false)")
    session.execute("CREATE TABLE cp.main.plain (i INTEGER)")
    assert {
        enabled
        for (enabled,) in session.execute(
            "SELECT enabled FROM quack_multiraft_sql_contract_status()"
        ).fetchall()
    } == {False}
    for statement in (
        "CREATE TABLE cp.main.t (i INTEGER) WITH (quack_group = 'g')",
        "CREATE TABLE cp.main.t WITH (quack_group = 'g') AS SELECT 1 AS i",
        "ALTER TABLE cp.main.plain SET GROUP 'g'",
    ):
        with pytest.raises(
            duckdb.NotImplementedException, match="quack_multiraft_sql_set_enabled"
        ) as caught:
            session.execute(statement)
        assert quack.errors.code_of(caught.value) == "not_supported"
    session.execute(ENABLE)
    for node in cluster.nodes:
        wait_until(
            lambda node=node: (
                query(
                    cluster,
                    node,
                    "SELECT bool_and(enabled) FROM quack_multiraft_sql_contract_status('cp')",
                )
                == [(True,)]
            ),
            "the switch on every node",
        )
    session.close()


def test_a_read_only_attachment_changes_nothing(groups: LocalCluster) -> None:
    session = quack.connect()
    session.execute(groups.attach_sql().removesuffix(")") + ", READ_ONLY)")
    for statement in (
        "SELECT quack_multiraft_sql_set_enabled(false)",
        "SELECT quack_multiraft_sql_set_enabled(false, 'cp')",
        "CREATE TABLE cp.main.t (i INTEGER) WITH (quack_group = 'g')",
        "ALTER TABLE cp.main.t SET GROUP 'g'",
        "CALL quack_member_remove('node-1', 'cp')",
        "CALL quack_reseed('node-1', 'cp')",
        "CALL quack_transfer_leadership('node-1', 'cp')",
        "CALL quack_rebalance('cp')",
    ):
        with pytest.raises(duckdb.InvalidInputException, match="attached in read-only mode"):
            session.execute(statement)
    assert session.execute(
        "SELECT bool_and(enabled) FROM quack_multiraft_sql_contract_status('cp')"
    ).fetchall() == [(True,)]
    session.close()


def test_tables_are_placed_where_they_are_told_to(
    groups: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    session.execute("CREATE SCHEMA cp.app")
    session.execute(
        "CREATE TABLE cp.app.orders (i INTEGER PRIMARY KEY) WITH (quack_group = 'orders-group')"
    )
    session.execute(
        "CREATE TABLE cp.app.events (tenant_id BIGINT, n INTEGER)"
        " WITH (quack_shard_key = 'tenant_id', quack_initial_groups = 8)"
    )
    session.execute(
        "CREATE TABLE cp.app.pairs (a INTEGER, b VARCHAR, n INTEGER)"
        " WITH (quack_shard_key = 'a,b', quack_initial_groups = 4)"
    )
    session.execute(
        "CREATE TABLE cp.app.copied WITH (quack_shard_key = 'k', quack_initial_groups = 2)"
        " AS SELECT i AS k, 'x' AS v FROM range(100) r(i)"
    )
    session.execute("CREATE TABLE cp.app.pinned WITH (quack_group = 'other') AS SELECT 1 AS i")
    assert session.execute(TABLES).fetchall() == [
        ("app", "copied", "k", 512, "shard-0"),
        ("app", "copied", "k", 512, "shard-1"),
        *[("app", "events", "tenant_id", 128, f"shard-{n}") for n in range(8)],
        ("app", "orders", None, 1024, "orders-group"),
        *[("app", "pairs", "a,b", 256, f"shard-{n}") for n in range(4)],
        ("app", "pinned", None, 1024, "other"),
    ]
    session.execute("INSERT INTO cp.app.orders VALUES (1), (2)")
    session.execute("INSERT INTO cp.app.events SELECT i % 50, i FROM range(1000) r(i)")
    session.execute("INSERT INTO cp.app.pairs SELECT i, i::VARCHAR, 0 FROM range(100) r(i)")
    session.execute("UPDATE cp.app.pairs SET n = a WHERE a < 50")
    session.execute("DELETE FROM cp.app.events WHERE tenant_id = 7")
    for node in groups.nodes:
        reader = groups.connect(node, consistency="linearizable")
        assert reader.execute("SELECT count(*), sum(n) FROM cp.app.events").fetchall() == [
            (980, 499500 - sum(range(7, 1000, 50)))
        ]
        assert reader.execute("SELECT sum(n) FROM cp.app.pairs").fetchall() == [(1225,)]
        assert reader.execute("SELECT count(*) FROM cp.app.copied").fetchall() == [(100,)]
        reader.close()
    assert_equal(groups)


def test_a_group_without_tables_gets_the_next_name(
    groups: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    names = "SELECT \"group\" FROM quack_group_status('cp') ORDER BY ALL"
    session.execute("CREATE TABLE cp.main.lane0 (i INTEGER) WITH (quack_group = 'lane-0')")
    session.execute("INSERT INTO cp.main.lane0 VALUES (0)")
    count = len(session.execute(names).fetchall())
    for turn in range(1, 5):
        session.execute(f"DROP TABLE cp.main.lane{turn - 1}")
        session.execute(
            f"CREATE TABLE cp.main.lane{turn} (i INTEGER) WITH (quack_group = 'lane-{turn}')"
        )
        session.execute(f"INSERT INTO cp.main.lane{turn} VALUES ({turn})")
    listed = session.execute(names).fetchall()
    assert len(listed) == count and ("lane-4",) in listed
    assert placed(session, "lane4") == ["lane-4"]
    # After a restart a node knows it by its last name.
    follower = next(node for node in groups.nodes if node is not groups.wait_leader())
    follower.kill()
    follower.start()
    wait_until(
        lambda: query(groups, follower, names) == listed,
        lambda: f"the names: {query(groups, follower, names)}",
    )
    assert_equal(groups)


def test_tables_change_their_groups(
    groups: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    session.execute('CREATE TABLE cp."my table" (i INTEGER PRIMARY KEY, v INTEGER)')
    session.execute('INSERT INTO cp."my table" SELECT i, 0 FROM range(10) r(i)')
    session.execute(
        "CREATE TABLE cp.s (k INTEGER, v INTEGER) WITH (quack_shard_key = 'k', quack_initial_groups = 2)"
    )
    session.execute("INSERT INTO cp.s SELECT i, 0 FROM range(100) r(i)")
    session.execute("ALTER TABLE cp.\"my table\" SET GROUP 'a group';")
    assert placed(session, "my table") == ["a group"]
    session.execute('UPDATE cp."my table" SET v = v + 1')
    session.execute(
        'ALTER TABLE "cp"."main"."my table" SET GROUP DEFAULT; ALTER TABLE cp.main.s SET GROUPS 5; SELECT 1'
    )
    assert placed(session, "my table") == []
    assert len(placed(session, "s")) == 5
    session.execute('UPDATE cp."my table" SET v = v + 1')
    session.execute("UPDATE cp.s SET v = v + 1")
    session.execute("ALTER TABLE cp.s SET GROUPS 3")
    session.execute("UPDATE cp.s SET v = v + 1")
    session.execute("ALTER TABLE IF EXISTS cp.main.missing SET GROUPS 4")
    with pytest.raises(duckdb.CatalogException, match="missing"):
        session.execute("ALTER TABLE cp.main.missing SET GROUPS 4")
    session.execute("USE cp")
    session.execute("alter table s set groups 4")
    session.execute("BEGIN")
    session.execute('UPDATE "my table" SET v = v + 1')
    session.execute("ALTER TABLE \"my table\" SET GROUP 'in a transaction'")
    session.execute("ALTER TABLE s SET GROUPS 1")
    session.execute("ROLLBACK")
    assert (placed(session, "my table"), len(placed(session, "s"))) == ([], 4)
    session.execute("BEGIN")
    session.execute('UPDATE "my table" SET v = v + 1')
    session.execute("ALTER TABLE \"my table\" SET GROUP 'in a transaction'")
    session.execute("UPDATE s SET v = v + 1")
    session.execute("COMMIT")
    assert placed(session, "my table") == ["in a transaction"]
    assert_equal(groups)
    for node in groups.nodes:
        reader = groups.connect(node, consistency="linearizable")
        assert reader.execute('SELECT sum(v) FROM cp."my table"').fetchall() == [(30,)]
        assert reader.execute("SELECT sum(v), count(*) FROM cp.s").fetchall() == [(300, 100)]
        reader.close()


def test_statements_run_on_the_node_itself(
    groups: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    """What a node runs by itself, and not what a client made of it."""
    for statement in (
        "CREATE TABLE here (k INTEGER, v INTEGER) WITH (quack_shard_key = ''k'', quack_initial_groups = 2)",
        "ALTER TABLE cp.main.here SET GROUPS 3",
        "ALTER TABLE here SET GROUPS 4",
    ):
        session.execute(f"FROM cp.query('{statement}')").fetchall()
    assert len(placed(session, "here")) == 4
    assert session.execute(
        "FROM cp.query('SELECT count(*) FROM quack_table_groups() WHERE table_name = ''here''')"
    ).fetchall() == [(4,)]


REFUSED = [
    (
        "CREATE TABLE cp.main.bad (i INTEGER) WITH (quack_group = 'a', quack_shard_key = 'i')",
        "one or the other",
    ),
    ("CREATE TABLE cp.main.bad (i INTEGER) WITH (quack_colour = 'red')", "known are: quack_group"),
    ("CREATE TABLE cp.main.bad (i INTEGER) WITH (quack_group = '')", "must not be empty"),
    ("CREATE TABLE cp.main.bad WITH (quack_group = 3) AS SELECT 1 AS i", "single quotes"),
    (
        "CREATE TABLE cp.main.bad (i INTEGER) WITH (quack_shard_key = 'i')",
        "needs quack_initial_groups",
    ),
    (
        "CREATE TABLE cp.main.bad (i INTEGER) WITH (quack_shard_key = 'j', quack_initial_groups = 4)",
        "its columns are: i",
    ),
    (
        "CREATE TABLE cp.main.bad (i INTEGER) WITH (quack_shard_key = 'i', quack_initial_groups = 0)",
        "from 1 to 256 groups, got 0",
    ),
    (
        "CREATE TABLE cp.main.bad WITH (quack_shard_key = 'i', quack_initial_groups = 257) AS SELECT 1 AS i",
        "from 1 to 256 groups, got 257",
    ),
    (
        "CREATE TABLE cp.main.bad (i INTEGER PRIMARY KEY, j INTEGER)"
        " WITH (quack_shard_key = 'j', quack_initial_groups = 2)",
        "does not contain shard key column",
    ),
    ("ALTER TABLE cp.main.unsharded SET GROUPS 4", "is not sharded"),
    ("ALTER TABLE cp.main.unsharded SET GROUPS 0", "from 1 to 256 groups, got 0"),
    ("ALTER TABLE cp.main.unsharded SET GROUPS many", "expected a whole number"),
    ("ALTER TABLE cp.main.unsharded SET GROUP name", "single quotes or DEFAULT"),
    ("ALTER TABLE cp.main.unsharded SET GROUP", "the end of the statement"),
    ("ALTER TABLE memory.main.local SET GROUP 'g'", "has no groups"),
]


@pytest.mark.parametrize(("statement", "reason"), REFUSED)
def test_what_cannot_be_placed_is_refused_with_the_reason(
    session: duckdb.DuckDBPyConnection, statement: str, reason: str
) -> None:
    session.execute("CREATE TABLE IF NOT EXISTS cp.main.unsharded (i INTEGER)")
    session.execute("CREATE TABLE local (i INTEGER)")
    with pytest.raises((duckdb.BinderException, duckdb.ParserException), match=reason):
        session.execute(statement)
    assert placed(session, "bad") == []


def test_status_has_a_row_per_group(
    groups: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    session.execute("CREATE TABLE cp.main.shown (i INTEGER) WITH (quack_group = 'shown')")
    session.execute("INSERT INTO cp.main.shown VALUES (1)")
    status = session.execute(
        "SELECT role, leader_id, applied_index, commit_index FROM quack_raft_status('cp') WHERE \"group\" = 'shown'"
    ).fetchall()
    assert len(status) == 1 and status[0][2] >= 2
    (row,) = session.execute(
        "SELECT leader, term, len(members), last_error FROM quack_group_status('cp') WHERE \"group\" = 'shown'"
    ).fetchall()
    assert row[0] in {node.node_id for node in groups.nodes}
    assert row[1:] == (row[1], 3, None) and row[1] >= 1

    def applied() -> list[tuple[str, int | None, int, str | None]]:
        return session.execute(
            "SELECT m.node_id, m.applied_index - commit_index, m.queue_count, m.last_error FROM ("
            "SELECT unnest(members) AS m, commit_index FROM quack_group_status('cp') WHERE \"group\" = 'shown')"
        ).fetchall()

    # Every member says for itself how far it is.
    caught_up = [(node.node_id, 0, 0, None) for node in groups.nodes]
    wait_until(
        lambda: sorted(applied()) == caught_up,
        lambda: f"every member has applied everything: {applied()}",
    )
    assert session.execute(
        "SELECT count(*) FROM quack_group_status('cp') WHERE \"group\" = 'root'"
    ).fetchall() == [(1,)]
    assert session.execute(
        "SELECT leader FROM quack_table_groups('cp') WHERE table_name = 'shown'"
    ).fetchall() == [(row[0],)]
    features = session.execute("SELECT * FROM quack_multiraft_sql_contract_status()").fetchall()
    assert len(features) >= 6 and all(row[1] and row[2] >= 4 and row[3] == [] for row in features)


class Bank:
    """Accounts spread over groups; transfers between them, and readers that watch the sum on every node."""

    def __init__(self, cluster: LocalCluster, table: str, accounts: int, groups: int) -> None:
        self.cluster = cluster
        self.table = f"cp.main.{table}"
        self.accounts = accounts
        self.failures: list[str] = []
        self.transfers = 0
        self.reads = dict.fromkeys((node.node_id for node in cluster.nodes), 0)
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        session = cluster.connect()
        session.execute(
            f"CREATE TABLE {self.table} (k INTEGER PRIMARY KEY, v BIGINT)"
            f" WITH (quack_shard_key = 'k', quack_initial_groups = {groups})"
        )
        session.execute(f"INSERT INTO {self.table} SELECT i, 100 FROM range({accounts}) r(i)")
        session.close()
        for node in cluster.nodes:
            wait_until(
                lambda node=node: self.total(node) == self.expected, "the accounts on every node"
            )

    @property
    def expected(self) -> list[tuple[int, int]]:
        return [(self.accounts * 100, self.accounts)]

    def total(self, node: LocalNode, **options: str) -> list[tuple[int, ...]] | None:
        return query(self.cluster, node, f"SELECT sum(v), count(*) FROM {self.table}", **options)

    def start(self, writers: int) -> None:
        jobs = [lambda number=number: self._write(number) for number in range(writers)]
        jobs += [lambda node=node: self._read(node) for node in self.cluster.nodes]
        self.threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in self.threads:
            thread.start()

    def __enter__(self) -> Bank:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()

    def finish(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self.threads)
        assert self.failures == []

    def _write(self, number: int) -> None:
        chance = random.Random(number)
        session = self.cluster.connect()
        while not self.stop.is_set():
            giver, taker = chance.sample(range(self.accounts), 2)
            try:
                session.execute("BEGIN")
                session.execute(f"UPDATE {self.table} SET v = v - 1 WHERE k = {giver}")
                session.execute(f"UPDATE {self.table} SET v = v + 1 WHERE k = {taker}")
                session.execute("COMMIT")
                self.transfers += 1
            except duckdb.Error:
                # A conflict, or a node that was killed: the transfer is whole or not at all.
                with contextlib.suppress(duckdb.Error):
                    session.execute("ROLLBACK")
        session.close()

    def _read(self, node: LocalNode) -> None:
        """What the node itself holds at this moment, however far it is."""
        while not self.stop.is_set():
            try:
                session = self.cluster.connect(node, consistency="eventual")
            except duckdb.Error:
                self.stop.wait(0.05)  # it is down
                continue
            try:
                while not self.stop.is_set():
                    total = session.execute(f"SELECT sum(v), count(*) FROM {self.table}").fetchall()
                    self.reads[node.node_id] += 1
                    if total != self.expected:
                        self.failures.append(f"{node.node_id} saw {total}")
            except duckdb.Error:
                pass
            finally:
                session.close()


def persist(cluster: LocalCluster, statement: str, timeout_s: float = 60) -> None:
    """Repeat the statement until it has committed; it must be one that may be repeated."""

    def done() -> bool:
        try:
            session = cluster.connect()
        except duckdb.Error:
            return False
        try:
            session.execute(statement)
            return True
        except duckdb.Error as error:
            last.append(str(error))
            return False
        finally:
            session.close()

    last: list[str] = []
    wait_until(done, lambda: f"{statement}: {last[-1:]}", timeout_s)


PLACES = {
    "in the root group": "",
    "pinned": "WITH (quack_group = 'defaults-lane')",
    "sharded": "WITH (quack_shard_key = 'id', quack_initial_groups = 4)",
}


@pytest.mark.parametrize("placement", PLACES.values(), ids=PLACES.keys())
def test_new_columns_have_their_default_in_every_row(groups: LocalCluster, placement: str) -> None:
    """Columns are added through one node while rows come through all of them: which default a row
    gets is a matter of the order of the logs, and no row is without one."""
    persist(groups, "DROP TABLE IF EXISTS cp.main.defaults")
    persist(groups, f"CREATE TABLE cp.main.defaults (id BIGINT, writer BIGINT) {placement}")
    stop = threading.Event()
    inserted = [0] * len(groups.nodes)
    failures: list[str] = []

    def insert(number: int) -> None:
        session = groups.connect(groups.nodes[number])
        while not stop.is_set():
            row = f"INSERT INTO cp.main.defaults (id, writer) VALUES ({inserted[number]}, {number})"
            try:
                session.execute(row)
                inserted[number] += 1
            except duckdb.Error as error:
                if quack.errors.code_of(error) not in RETRYABLE:
                    failures.append(str(error))
                    return
        session.close()

    writers = [threading.Thread(target=insert, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        for column in range(5):
            goal = [count + 5 for count in inserted]
            wait_until(
                lambda goal=goal: failures or all(map(int.__ge__, inserted, goal)),
                lambda: f"inserts through every node: {inserted}",
            )
            persist(
                groups,
                f"ALTER TABLE cp.main.defaults ADD COLUMN IF NOT EXISTS c{column} INTEGER "
                f"DEFAULT {100 + column}",
            )
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not failures
    wrong = " OR ".join(f"c{column} IS DISTINCT FROM {100 + column}" for column in range(5))
    for node in groups.nodes:
        reader = groups.connect(node, consistency="linearizable")
        assert reader.execute(
            f"SELECT count(*), count(DISTINCT (id, writer)), count(*) FILTER ({wrong}) "
            "FROM cp.main.defaults"
        ).fetchall() == [(sum(inserted), sum(inserted), 0)]
        reader.close()
    assert_equal(groups)


def test_transfers_between_groups_are_whole_on_every_node(groups: LocalCluster) -> None:
    with Bank(groups, "accounts", 12, 8) as bank:
        bank.start(writers=3)
        wait_until(
            lambda: bank.transfers > 60 and min(bank.reads.values()) > 60,
            lambda: f"transfers and reads: {bank.transfers}, {bank.reads}\n{tails(groups)}",
        )
        bank.finish()
    assert_equal(groups)


def test_groups_are_resized_while_leaders_are_killed(groups: LocalCluster) -> None:
    with Bank(groups, "resized", 24, 4) as bank:
        bank.start(writers=3)
        reader = groups.connect()
        for count in (16, 2):
            before = bank.transfers
            leader = groups.wait_leader()
            wait_until(lambda before=before: bank.transfers > before + 5, "transfers")
            leader.kill()
            persist(groups, f"ALTER TABLE cp.main.resized SET GROUPS {count}")
            leader.start()
            groups.wait_leader()
            assert len(placed(reader, "resized")) == count
            before = bank.transfers
            wait_until(
                lambda before=before: bank.transfers > before + 5,
                lambda: f"transfers after SET GROUPS\n{tails(groups)}",
            )
        reader.close()
        bank.finish()
    assert_equal(groups)
    for node in groups.nodes:
        assert bank.total(node, consistency="linearizable") == bank.expected


def test_nodes_that_start_again_find_their_groups(groups: LocalCluster) -> None:
    session = groups.connect()
    session.execute(
        "CREATE TABLE cp.main.kept (k INTEGER PRIMARY KEY, v INTEGER)"
        " WITH (quack_shard_key = 'k', quack_initial_groups = 4)"
    )
    session.execute("INSERT INTO cp.main.kept SELECT i, 0 FROM range(50) r(i)")
    before = session.execute(TABLES).fetchall()
    session.close()
    for node in groups.nodes[:2]:
        node.kill()
    groups.nodes[2].stop()
    for node in groups.nodes:
        node.start()
    groups.wait_leader(60)
    persist(groups, "UPDATE cp.main.kept SET v = 1")
    for node in groups.nodes:
        reader = groups.connect(node, consistency="linearizable")
        assert reader.execute(TABLES).fetchall() == before
        assert reader.execute("SELECT sum(v), count(*) FROM cp.main.kept").fetchall() == [(50, 50)]
        reader.close()
    assert_equal(groups)


def run_cli(*arguments: str) -> str:
    """Run a command of quack; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "quack", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_node_that_is_reseeded_gets_its_groups_back(groups: LocalCluster) -> None:
    leader = groups.wait_leader()
    follower = next(node for node in groups.nodes if node is not leader)
    persist(
        groups,
        "CREATE TABLE IF NOT EXISTS cp.main.reseeded (k INTEGER, v INTEGER)"
        " WITH (quack_shard_key = 'k', quack_initial_groups = 4)",
    )
    session = groups.connect(leader)
    session.execute("INSERT INTO cp.main.reseeded SELECT i, i FROM range(100) r(i)")
    session.close()
    run_cli("cluster", "node", "reseed", follower.node_id, "--config", str(leader.config_file))
    persist(groups, "INSERT INTO cp.main.reseeded VALUES (1000, 1)")
    reader = groups.connect(follower, consistency="linearizable")
    assert len(placed(reader, "reseeded")) == 4
    assert reader.execute("SELECT count(*) FROM cp.main.reseeded").fetchall() == [(101,)]
    reader.close()
    assert_equal(groups)


def test_a_follower_gets_its_groups_with_an_image(tmp_path: pathlib.Path) -> None:
    """What it missed is no longer in any log; transactions over groups go on meanwhile."""
    settings: dict[str, object] = {
        "log_tail_bytes": 200_000,
        "log_segment_bytes": 65_536,
        "checkpoint_idle_ms": 200,
    }
    with LocalCluster.create(tmp_path / "cluster", 3, settings=settings) as cluster:
        cluster.start()
        session = cluster.connect()
        session.execute(ENABLE)
        with Bank(cluster, "accounts", 12, 4) as bank:
            leader = cluster.wait_leader()
            follower = next(node for node in cluster.nodes if node is not leader)
            follower.stop()
            session.execute("ALTER TABLE cp.main.accounts SET GROUPS 6")
            session.execute("CREATE TABLE cp.main.bulk (h UBIGINT) WITH (quack_group = 'bulk')")
            bank.start(writers=2)
            first = oldest_segments(cluster)

            def is_cut() -> bool:
                session.execute("INSERT INTO cp.main.bulk SELECT hash(random()) FROM range(20000)")
                now = oldest_segments(cluster)
                return all(now[name] > first[name] for name in now if name != follower.node_id)

            wait_until(is_cut, lambda: f"logs that are cut\n{tails(cluster)}")
            follower.start()
            wait_until(
                lambda: "snapshot_installed" in follower.log_file.read_text(),
                lambda: f"an image\n{tails(cluster)}",
            )
            before = bank.transfers
            reads = bank.reads[follower.node_id]
            wait_until(
                lambda: bank.transfers > before + 5 and bank.reads[follower.node_id] > reads + 5,
                lambda: f"transfers and reads on the follower\n{tails(cluster)}",
            )
            bank.finish()
        session.close()
        assert_equal(cluster)
        assert query(cluster, follower, TABLES) == query(cluster, leader, TABLES)


def oldest_segments(cluster: LocalCluster) -> dict[str, str]:
    """By node, how far back its log reaches."""
    return {
        node.node_id: min(file.name for file in (data_dir(node) / "log").glob("segment-*"))
        for node in cluster.nodes
    }

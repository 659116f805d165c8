"""Goal: the change feed of three real voters: the same from each of them, whatever happens to them meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

import quack
from probes import query, tails, wait_until
from quack import changes
from quack.cluster.local import LocalCluster, LocalNode
from quack.cluster.target import Target
from quack.errors import NotFoundError

pytestmark = pytest.mark.cluster

#: Columns in front of the table's own.
OWN_COLUMNS = 5


@pytest.fixture(scope="module")
def fed(cluster: LocalCluster) -> LocalCluster:
    """Three voters that keep changes and let tables be placed."""
    with cluster.connect() as session:
        session.execute("SELECT quack_multiraft_sql_set_enabled(true)")
        session.execute("SELECT quack_changes_set_retention('64MB')")
    return cluster


@pytest.fixture
def session(fed: LocalCluster) -> Iterator[duckdb.DuckDBPyConnection]:
    """A client of all nodes."""
    opened = fed.connect()
    yield opened
    opened.close()


def position(session: duckdb.DuckDBPyConnection) -> str:
    """What the session's node has applied."""
    return session.execute("SELECT position FROM quack_changes_position('cp')").fetchall()[0][0]


def feed_of(
    cluster: LocalCluster, node: LocalNode, table: str, start: str, end: str
) -> list[tuple]:
    """The changes of a range as one node tells them, as soon as it can."""
    sql = f"FROM quack_changes('cp', '{table}', '{start}', '{end}')"
    return wait_until(
        lambda: query(cluster, node, sql), lambda: f"{sql} of {node.node_id}\n{tails(cluster)}"
    )


def fold(rows: list[tuple]) -> Counter:
    """The content of a table that was empty, after the changes."""
    content: Counter = Counter()
    for row in rows:
        change, values = row[0], row[OWN_COLUMNS:]
        if change in ("insert", "update_postimage"):
            content[values] += 1
        else:
            assert content[values] > 0, row
            content[values] -= 1
    return +content


def assert_all_tell(
    cluster: LocalCluster, session: duckdb.DuckDBPyConnection, table: str, start: str
) -> list[tuple]:
    """Every node tells the same changes, and they make up the table."""
    end = position(session)
    feeds = [feed_of(cluster, node, table, start, end) for node in cluster.nodes]
    assert all(Counter(feed) == Counter(feeds[0]) for feed in feeds)
    content = Counter(session.execute(f"FROM cp.{table}").fetchall())
    for feed in feeds:
        assert fold(feed) == content
    return feeds[0]


def test_dml_ddl_and_a_large_transaction(
    fed: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    session.execute("CREATE TABLE cp.t (i INTEGER PRIMARY KEY, v VARCHAR)")
    start = position(session)
    session.execute("INSERT INTO cp.t SELECT i, 'v' || i FROM range(1000) r(i)")
    session.execute("UPDATE cp.t SET v = 'u' WHERE i < 10")
    session.execute("DELETE FROM cp.t WHERE i BETWEEN 10 AND 19")
    session.execute(
        "MERGE INTO cp.t USING (SELECT range + 995 AS i FROM range(10)) s ON t.i = s.i "
        "WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT VALUES (s.i, 'n')"
    )
    session.execute("BEGIN")
    session.execute(
        "INSERT INTO cp.t SELECT i + 10000, repeat(md5(i::VARCHAR), 4) FROM range(100000) r(i)"
    )
    session.execute("DELETE FROM cp.t WHERE i % 2 = 0 AND i < 1000")
    session.execute("COMMIT")
    session.execute("ALTER TABLE cp.t ADD COLUMN w DATE")
    session.execute("TRUNCATE cp.t")
    session.execute("INSERT INTO cp.t VALUES (1, 'last', DATE '2026-01-01')")
    feed = assert_all_tell(fed, session, "t", start)
    kinds = Counter(row[0] for row in feed)
    assert kinds["insert"] >= 101_006 and kinds["update_preimage"] == kinds["update_postimage"]
    largest = max(Counter(row[2] for row in feed).values())
    assert largest > 100_000, "the large transaction is one commit"


def test_all_types_come_through_the_wire(
    fed: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    session.execute("CREATE TABLE cp.types AS FROM test_all_types()")
    own = "change, commit_group, commit_index, commit_order, request_id"
    feed = f"SELECT * EXCLUDE ({own}) FROM quack_changes('cp', 'types', NULL, NULL)"
    assert session.execute(f"{feed} EXCEPT ALL FROM cp.types").fetchall() == []
    assert session.execute(f"SELECT count(*) FROM ({feed})").fetchall() == [(3,)]


def test_errors_have_codes(fed: LocalCluster, session: duckdb.DuckDBPyConnection) -> None:
    session.execute("CREATE TABLE cp.coded (i INTEGER)")
    session.execute("INSERT INTO cp.coded VALUES (1)")
    session.execute("SET quack_request_timeout_ms = 2000")
    for arguments, code in [
        ("'missing', NULL, NULL", "not_found"),
        ("'coded', '1:1', NULL", "not_found"),
        ("'coded', '1:99999999', NULL", "unavailable"),
        ("'coded', 'x', NULL", "invalid_argument"),
    ]:
        with pytest.raises(duckdb.Error) as caught:
            session.execute(f"FROM quack_changes('cp', {arguments})").fetchall()
        assert quack.errors.code_of(caught.value) == code, str(caught.value)
    for value in ("'lots'", "-1"):
        with pytest.raises(duckdb.Error, match="text like '512MB'") as caught:
            session.execute(f"SELECT quack_changes_set_retention({value})")
        assert quack.errors.code_of(caught.value) == "invalid_argument"


@pytest.fixture
def target(fed: LocalCluster) -> Target:
    """All nodes, as the package's commands reach them."""
    hosts = ",".join(node.endpoint for node in fed.nodes)
    return Target(hosts, fed.token, fed.folder / "ca" / "ca.pem")


def test_a_follower_goes_on_at_another_node(
    fed: LocalCluster, session: duckdb.DuckDBPyConnection, target: Target
) -> None:
    """The node that it reads from is killed while others write; it sees every commit once, in order."""
    session.execute("CREATE TABLE cp.followed (i INTEGER)")
    batches = changes.follow(target, "followed", "latest", wait_s=60, rows=3)
    start = next(batches).position
    writes = 40

    def write() -> None:
        with fed.connect(fed.nodes[1]) as writer:
            for i in range(writes):
                writer.execute("INSERT INTO cp.followed VALUES (?), (?)", [2 * i, 2 * i + 1])

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    seen: list[int] = []
    victim = fed.nodes[0]
    for batch in batches:
        seen += [change.row["i"] for change in batch.changes]
        if len(seen) >= 10 and victim.running():
            victim.kill()
        if len(seen) >= 2 * writes:
            break
    thread.join(timeout=60)
    victim.start()
    fed.wait_leader()
    assert seen == list(range(2 * writes))
    again = [
        change.row["i"]
        for batch in changes.follow(target, "followed", start)
        for change in batch.changes
    ]
    assert again == seen


def test_the_command_prints_changes_and_goes_on_behind_a_position(
    fed: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    session.execute("CREATE SCHEMA cp.app")
    session.execute("CREATE TABLE cp.app.printed (i INTEGER, day DATE, raw BLOB)")
    session.execute("INSERT INTO cp.app.printed VALUES (1, DATE '2026-01-02', 'ab'::BLOB)")

    def run(*arguments: str) -> list[str]:
        command = [sys.executable, "-m", "quack", "changes", "app.printed", *arguments]
        done = subprocess.run(
            [*command, "--config", str(fed.nodes[0].config_file)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout.splitlines() if done.returncode == 0 else [done.stderr]

    printed = run("--json")
    assert len(printed) == 2, printed
    change, last = map(json.loads, printed)
    assert change["change"] == "insert"
    assert change["row"] == {"i": 1, "day": "2026-01-02", "raw": "6162"}
    position = json.dumps(last["position"])
    session.execute("UPDATE cp.app.printed SET i = 2")
    lines = run("--from", position)
    assert [line.split()[1] for line in lines] == ["update_preimage", "update_postimage"]
    assert "i=2, day=2026-01-02" in lines[1]
    assert "neither earliest, latest, nor a position" in run("--from", "yesterday")[0]
    other = json.dumps({**last["position"], "cluster_id": "another"})
    assert "means nothing" in run("--from", other)[0]


def test_an_overrun_is_told(
    fed: LocalCluster, session: duckdb.DuckDBPyConnection, target: Target
) -> None:
    session.execute("CREATE TABLE cp.overrun (i INTEGER, v VARCHAR)")
    start = next(changes.follow(target, "overrun", "latest")).position
    session.execute("SELECT quack_changes_set_retention('1MB')")
    for i in range(4):
        session.execute("INSERT INTO cp.overrun SELECT ?, repeat('x', 6000000)", [i])
    with pytest.raises(NotFoundError, match="quack_changes_set_retention"):
        list(changes.follow(target, "overrun", start))
    kept = [
        change.row["i"] for batch in changes.follow(target, "overrun") for change in batch.changes
    ]
    assert kept == [3]
    session.execute("SELECT quack_changes_set_retention('64MB')")


def test_groups_change_while_a_node_dies(
    fed: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    """Transfers over groups, SET GROUPS in the middle, a killed node: nothing lost, nothing twice."""
    session.execute(
        "CREATE TABLE cp.account (k INTEGER PRIMARY KEY, v INTEGER)"
        " WITH (quack_shard_key = 'k', quack_initial_groups = 2)"
    )
    start = position(session)
    session.execute("INSERT INTO cp.account SELECT r, 100 FROM range(20) x(r)")
    failures: list[BaseException] = []

    def transfers() -> None:
        writer = fed.connect(fed.nodes[0])
        try:
            for i in range(60):
                writer.execute(
                    "UPDATE cp.account SET v = v + (CASE WHEN k = ? THEN 1 ELSE -1 END) "
                    "WHERE k IN (?, ?)",
                    [i % 20, i % 20, (i * 7 + 1) % 20],
                )
        except BaseException as error:
            failures.append(error)
        finally:
            writer.close()

    thread = threading.Thread(target=transfers, daemon=True)
    thread.start()
    victim = fed.nodes[2]
    victim.kill()
    session.execute("ALTER TABLE cp.account SET GROUPS 3")
    victim.start()
    thread.join(timeout=120)
    assert not thread.is_alive() and failures == []
    fed.wait_leader()
    feed = assert_all_tell(fed, session, "account", start)
    assert len({row[1] for row in feed}) > 1


def test_a_reseeded_node_tells_the_old_changes(
    fed: LocalCluster, session: duckdb.DuckDBPyConnection
) -> None:
    session.execute("CREATE TABLE cp.before (i INTEGER)")
    start = position(session)
    for i in range(5):
        session.execute("INSERT INTO cp.before VALUES (?)", [i])
    leader = fed.wait_leader()
    node = next(node for node in fed.nodes if node is not leader)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "quack", "cluster", "node", "reseed", node.node_id),
            *("--config", str(leader.config_file), "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    session.execute("INSERT INTO cp.before VALUES (5)")
    feed = assert_all_tell(fed, session, "before", start)
    assert [row[OWN_COLUMNS] for row in feed] == list(range(6))

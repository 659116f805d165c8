"""Transactions that are too large for one log entry: fragments, their end, and what happens in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from catalog_replica import Cluster, Replica, command

#: Small, so that a few thousand rows take many fragments.
SPLIT_BYTES = 16 * 1024
REQUEST = "00112233445566778899aa000000000000"[:32]
#: Incompressible text, about 40 bytes a row.
ROWS = "SELECT i AS id, md5(i::VARCHAR) AS text FROM range({0}) r(i)"
#: Entries after its own for which an outcome is remembered (outcome_window.hpp).
WINDOW = 65536


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Cluster]:
    """Three replicas that split transactions above 16 KiB."""
    made = Cluster(tmp_path, 3, SPLIT_BYTES)
    yield made
    made.close()


def wait_until(condition: Callable[[], bool], patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def streams(replica: Replica) -> tuple[int, int]:
    """How many large transactions are open on the node, and their bytes so far."""
    count, size = replica.command("streams").split("|")
    return int(count), int(size)


def stream_tables(replica: Replica) -> int:
    rows = replica.rows(
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'cp' AND schema_name = '__quack' "
        "AND table_name LIKE 'stream_%'"
    )
    return int(rows[0][0])


def entries(replica: Replica) -> int:
    return int(replica.command("applied"))


def insert_held_up(replica: Replica, seen_by: Replica) -> threading.Thread:
    """5,000 rows on their way, of which five fragments came through; goes on when the fault ends."""
    replica.command("fault", "lost", "1000000", "5")
    thread = threading.Thread(
        target=lambda: replica.con.execute("INSERT INTO t " + ROWS.format(5_000))
    )
    thread.start()
    wait_until(lambda: streams(seen_by)[0] == 1)
    return thread


def finish(replica: Replica, thread: threading.Thread) -> None:
    replica.command("fault", "none", "0")
    thread.join(60)
    assert not thread.is_alive()


def break_off(replica: Replica, sql: str, fragments: int) -> None:
    """The statement loses its way to the log after so many fragments; the stream stays open."""
    replica.command("fault", "unavailable", "1000000", str(fragments))
    command(replica.con, "timeout", "300")
    with pytest.raises(duckdb.Error, match=r"quack unavailable: fragment \d+ of \d+ .*injected"):
        replica.con.execute(sql)
    command(replica.con, "timeout", "0")
    replica.command("fault", "none", "0")
    replica.command("wait")


def test_insert_is_one_atomic_transaction_on_all_nodes(large: Cluster) -> None:
    large[0].con.execute("CREATE TABLE t(id BIGINT PRIMARY KEY, text VARCHAR)")
    before = entries(large[0])
    large[0].con.execute("INSERT INTO t " + ROWS.format(20_000))
    assert entries(large[0]) > before + 20, "it was not split"
    assert large[0].rows("SELECT count(*), sum(id) FROM t") == [(20_000, 199_990_000)]
    large.assert_equal()
    for replica in large.replicas:
        assert streams(replica) == (0, 0)
        assert stream_tables(replica) == 0


def test_everything_in_one_transaction(large: Cluster) -> None:
    """DDL, deletes, updates, inserts and a sequence, in their order, each of them over several fragments."""
    con = large[1].con
    con.execute("CREATE TABLE a(id BIGINT PRIMARY KEY, text VARCHAR)")
    con.execute("CREATE TABLE b(id BIGINT, text VARCHAR)")
    con.execute("CREATE SEQUENCE s")
    con.execute("CREATE SCHEMA more")
    con.execute("CREATE TYPE more.mood AS ENUM ('sad', 'glad')")
    con.execute("INSERT INTO a " + ROWS.format(8_000))
    con.execute("INSERT INTO b SELECT id % 100, text FROM a")
    con.execute("BEGIN")
    con.execute("DELETE FROM a WHERE id % 2 = 0")
    con.execute("UPDATE a SET text = 'changed ' || text WHERE id % 2 = 1")
    con.execute("DELETE FROM b WHERE id < 50")
    con.execute("UPDATE b SET id = id + 1")
    con.execute("INSERT INTO a SELECT nextval('s') + 100000, text FROM b")
    con.execute("COMMIT")
    con.execute("BEGIN")
    con.execute("DELETE FROM a WHERE id % 4 = 1")
    con.execute("ALTER TABLE b ADD COLUMN more VARCHAR DEFAULT 'x'")
    con.execute("CREATE TABLE c AS " + ROWS.format(5_000))
    con.execute("INSERT INTO b SELECT id, text, text FROM c")
    con.execute("CREATE INDEX c_id ON c(id)")
    con.execute("CREATE TABLE more.d(id BIGINT DEFAULT nextval('s'), how more.mood)")
    con.execute("DROP TABLE more.d")
    con.execute("CREATE TABLE more.e(id BIGINT DEFAULT nextval('s'), how more.mood)")
    con.execute("COMMIT")
    large.assert_equal()
    with pytest.raises(duckdb.DependencyException, match='table "e" depends on type "mood"'):
        large[0].con.execute("DROP TYPE more.mood")
    plain = duckdb.connect()
    plain.execute("CREATE TABLE a(id BIGINT PRIMARY KEY, text VARCHAR)")
    plain.execute("CREATE TABLE b(id BIGINT, text VARCHAR)")
    plain.execute("INSERT INTO a " + ROWS.format(8_000))
    plain.execute("INSERT INTO b SELECT id % 100, text FROM a")
    plain.execute("DELETE FROM a WHERE id % 2 = 0")
    plain.execute("UPDATE a SET text = 'changed ' || text WHERE id % 2 = 1")
    plain.execute("DELETE FROM b WHERE id < 50")
    plain.execute("UPDATE b SET id = id + 1")
    plain.execute("INSERT INTO a SELECT row_number() OVER () + 100000, text FROM b")
    plain.execute("DELETE FROM a WHERE id % 4 = 1")
    plain.execute("ALTER TABLE b ADD COLUMN more VARCHAR DEFAULT 'x'")
    plain.execute("INSERT INTO b SELECT id, text, text FROM (" + ROWS.format(5_000) + ")")
    for sql in (
        "SELECT count(*), sum(hash(text)) FROM a WHERE id < 100000",
        "SELECT count(*), sum(id) FROM a",
        "SELECT count(*), sum(id), sum(hash(text)), sum(hash(more)) FROM b",
    ):
        for replica in large.replicas:
            assert replica.rows(sql) == plain.execute(sql).fetchall()
    assert large[2].rows("SELECT count(*) FROM c") == [(5_000,)]


def test_other_writers_go_on_in_between_and_nothing_shows_early(large: Cluster) -> None:
    large[0].con.execute("CREATE TABLE t(id BIGINT PRIMARY KEY, text VARCHAR)")
    large[0].con.execute("CREATE TABLE small(i BIGINT)")
    break_off(large[0], "INSERT INTO t " + ROWS.format(20_000), 10)
    for replica in large.replicas:
        replica.command("wait")
        assert streams(replica)[0] == 1
        replica.con.execute("INSERT INTO small VALUES (1)")
        replica.con.execute("INSERT INTO t VALUES (?, 'early')", [large.replicas.index(replica)])
        assert replica.rows("SELECT count(*) FROM t WHERE text <> 'early'") == [(0,)]
    large.assert_equal()


def test_first_committer_wins(large: Cluster) -> None:
    """What another transaction committed after the snapshot rejects the large one as a whole."""
    large[0].con.execute("CREATE TABLE t(id BIGINT PRIMARY KEY, text VARCHAR)")
    large[0].con.execute("INSERT INTO t " + ROWS.format(10_000))
    con = large[0].session()
    con.execute("BEGIN")
    con.execute("UPDATE t SET text = 'large'")
    large[1].command("wait")
    large[1].con.execute("UPDATE t SET text = 'small' WHERE id = 9999")
    with pytest.raises(duckdb.Error, match="quack conflict"):
        con.execute("COMMIT")
    assert large[0].rows("SELECT text, count(*) FROM t WHERE length(text) < 10 GROUP BY 1") == [
        ("small", 1)
    ]
    with pytest.raises(duckdb.Error, match="(?i)quack constraint|duplicate"):
        large[2].con.execute("INSERT INTO t SELECT id + 9000, text FROM t")
    large.assert_equal()
    assert stream_tables(large[0]) == 0


@pytest.mark.parametrize("fault", ["unknown", "lost", "twice", "unavailable"])
def test_fragments_that_come_twice_or_late_count_once(large: Cluster, fault: str) -> None:
    large[0].con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    for skip in (0, 3):
        large[0].command("fault", fault, "4", str(skip))
        large[0].con.execute("INSERT INTO t " + ROWS.format(5_000))
        large[0].command("fault", "none", "0")
    assert large[0].rows("SELECT count(*), count(DISTINCT id) FROM t") == [(10_000, 5_000)]
    large.assert_equal()


def test_repeats_after_the_end_change_nothing(large: Cluster) -> None:
    """A proposal that was long on its way: first fragment, last fragment and end once more."""
    large[0].con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    first = entries(large[0]) + 1
    large[0].con.execute("INSERT INTO t " + ROWS.format(5_000))
    last = entries(large[0])
    for index in (first, last - 1, last):
        large[0].command("repeat", str(index))
    large[0].con.execute("INSERT INTO t VALUES (0, '')")
    assert large[0].rows("SELECT count(*) FROM t") == [(5_001,)]
    large.assert_equal()
    assert streams(large[0]) == (0, 0)


def test_a_stream_with_a_gap_is_refused(large: Cluster) -> None:
    """Fragments in the wrong order, missing or foreign never become a transaction."""
    large[0].con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    first = entries(large[0]) + 1
    break_off(large[0], "INSERT INTO t " + ROWS.format(5_000), 5)
    count, size = streams(large[0])
    assert count == 1
    large[0].command("fragment", "7", "7", "1", "the second one without the first")
    large[0].command("fragment", "7", "8", "0", "first")
    large[0].command("fragment", "7", "8", "2", "third")
    large[0].command("fragment", "6", "8", "1", "of another request")
    large[0].command("repeat", str(first))
    large[0].command("wait")
    assert streams(large[0]) == (2, size + len("first"))
    large.assert_equal()
    # Whoever asks what became of request 7 ends its stream.
    assert large[0].command("resolve", "07" * 16) in ("cancelled", "outcome_unknown")
    assert streams(large[0]) == (1, size)


def test_a_stream_ends_with_its_request(large: Cluster) -> None:
    """The origin dies; its client repeats the request elsewhere: one of the two commits, the other is swept away."""
    large[0].con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    command(large[0].con, "request", REQUEST)
    break_off(large[0], "INSERT INTO t " + ROWS.format(5_000), 5)
    large[1].command("wait")
    assert streams(large[1])[0] == 1
    command(large[1].con, "request", REQUEST)
    large[1].con.execute("INSERT INTO t " + ROWS.format(5_000))
    large.assert_equal()
    for replica in large.replicas:
        assert replica.rows("SELECT count(*) FROM t") == [(5_000,)]
        assert streams(replica) == (0, 0)
        assert stream_tables(replica) == 0
    command(large[2].con, "request", REQUEST)
    large[2].con.execute("INSERT INTO t " + ROWS.format(5_000))
    assert large[2].rows("SELECT count(*) FROM t") == [(5_000,)]


def test_the_leader_sweeps_what_nobody_ends(tmp_path: Path) -> None:
    log = tmp_path.name
    origin = Replica(tmp_path / "n0.db", log, "n0", split_bytes=SPLIT_BYTES)
    leader = Replica(
        tmp_path / "n1.db",
        log,
        "n1",
        voters="n0,n1",
        leads=True,
        split_bytes=SPLIT_BYTES,
        stream_ms=300,
    )
    origin.con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    break_off(origin, "INSERT INTO t " + ROWS.format(5_000), 5)
    wait_until(lambda: streams(leader) == (0, 0))
    origin.command("wait")
    assert streams(origin) == (0, 0)
    assert stream_tables(origin) == 0
    # The log behind it may go: the checkpoint covers it.
    origin.command("checkpoint")
    assert origin.command("durable") == origin.command("applied")
    origin.con.execute("INSERT INTO t " + ROWS.format(5_000))
    assert origin.hashes() == leader.hashes()
    origin.close()
    leader.close()


def test_an_origin_that_was_swept_hears_a_conflict(large: Cluster) -> None:
    """Its fragments were given up while it was away: nothing is committed, and it may retry."""
    large[0].con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    # The entry that gives up this very stream comes between two fragments: ask for the outcome of the request.
    command(large[0].con, "request", REQUEST)
    large[0].command("fault", "lost", "100", "5")
    failure: list[str] = []

    def insert() -> None:
        try:
            large[0].con.execute("INSERT INTO t " + ROWS.format(5_000))
        except duckdb.Error as error:
            failure.append(str(error))

    thread = threading.Thread(target=insert)
    thread.start()
    large[1].command("wait")
    wait_until(lambda: streams(large[1])[0] == 1)
    assert large[1].command("resolve", REQUEST) == "cancelled"
    finish(large[0], thread)
    assert failure and "quack cancelled" in failure[0]
    assert large[0].rows("SELECT count(*) FROM t") == [(0,)]
    large.assert_equal()
    assert streams(large[0]) == (0, 0)


def test_crash_checkpoint_and_restart_between_fragments(tmp_path: Path) -> None:
    log_file = str(tmp_path / "log")
    replica = Replica(tmp_path / "n0.db", "crash-a", "n0", log_file, split_bytes=SPLIT_BYTES)
    replica.con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    command(replica.con, "request", REQUEST)
    break_off(replica, "INSERT INTO t " + ROWS.format(5_000), 4)
    replica.command("checkpoint")
    large_before = streams(replica)
    break_off(replica, "INSERT INTO t " + ROWS.format(6_000), 6)
    both = streams(replica)
    assert both[0] == 2 and both[1] > large_before[1]
    replica.close()
    # The file is at its last checkpoint or at the end, the log replays the rest: the same either way.
    again = Replica(tmp_path / "n0.db", "crash-b", "n0", log_file, split_bytes=SPLIT_BYTES)
    again.command("wait")
    assert streams(again) == both
    assert again.rows("SELECT count(*) FROM t") == [(0,)]
    command(again.con, "request", REQUEST)
    again.con.execute("INSERT INTO t " + ROWS.format(5_000))
    assert again.rows("SELECT count(*) FROM t") == [(5_000,)]
    assert streams(again)[0] == 1
    # From nothing, by the log alone.
    fresh = Replica(tmp_path / "fresh.db", "crash-c", "fresh", log_file, split_bytes=SPLIT_BYTES)
    fresh.command("wait")
    assert streams(fresh) == streams(again)
    assert fresh.hashes() == again.hashes()
    again.close()
    fresh.close()


def test_snapshot_between_fragments(large: Cluster, tmp_path: Path) -> None:
    """An image taken in the middle holds what came before; the node that installs it ends the stream like the rest."""
    large[0].con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    large[2].command("wait")
    large[2].command("pause")
    thread = insert_held_up(large[0], large[1])
    large[1].command("checkpoint")
    image = tmp_path / "image"
    assert int(large[1].command("snapshot", str(image))) > entries(large[2])
    large[2].command("install", str(image))
    assert streams(large[2])[0] == 1
    large[2].command("resume")
    finish(large[0], thread)
    large.assert_equal()
    assert large[2].rows("SELECT count(*) FROM t") == [(5_000,)]
    assert stream_tables(large[2]) == 0


def test_more_entries_of_others_than_outcomes_are_remembered(tmp_path: Path) -> None:
    """The end of a stream may lie further behind its request than the window: the stream itself is the memory."""
    replica = Replica(tmp_path / "n0.db", tmp_path.name, "n0", split_bytes=SPLIT_BYTES)
    replica.con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    thread = insert_held_up(replica, replica)
    replica.command("noop", str(WINDOW + 10))
    replica.command("wait")
    finish(replica, thread)
    assert replica.rows("SELECT count(*) FROM t") == [(5_000,)]
    replica.close()


def test_damaged_fragments_latch_the_node(large: Cluster, tmp_path: Path) -> None:
    """What a node lost of a stream must not become a transaction of other rows there."""
    large[0].con.execute("CREATE TABLE t(id BIGINT, text VARCHAR)")
    large[2].command("wait")
    large[2].command("pause")
    thread = insert_held_up(large[0], large[1])
    large[1].command("checkpoint")
    image = tmp_path / "image"
    large[1].command("snapshot", str(image))
    with duckdb.connect(str(image)) as file:
        ((table,),) = file.execute(
            "SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'stream_%'"
        ).fetchall()
        file.execute(f"UPDATE __quack.{table} SET bytes = bytes || 'x'::BLOB WHERE sequence = 1")
    large[2].command("install", str(image))
    large[2].command("resume")
    finish(large[0], thread)
    wait_until(lambda: "large transaction" in large[2].command("degraded"))
    assert large[0].rows("SELECT count(*) FROM t") == [(5_000,)]
    assert large[0].hashes() == large[1].hashes()


def test_a_row_above_the_limit_is_refused_before_anything_is_proposed(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(id INT, text VARCHAR)")
    before = entries(replica)
    with pytest.raises(
        duckdb.Error,
        match=r'quack invalid_argument: a row of table "main\.t" takes 4\d{8} bytes, more than the 419430400 ',
    ):
        replica.con.execute("INSERT INTO t SELECT 1, repeat(repeat('x', 1000), 430000)")
    assert entries(replica) == before
    assert replica.rows("SELECT count(*) FROM t") == [(0,)]


def test_large_values_and_definitions(replica: Replica) -> None:
    """With the limits as they are: a value of 300 MB, deleted again, and definitions of 2 MB."""
    con = replica.con
    con.execute("CREATE TABLE t(id INT PRIMARY KEY, text VARCHAR)")
    con.execute("INSERT INTO t SELECT 1, repeat(repeat('0123456789', 100), 300000)")
    assert replica.rows("SELECT length(text), right(text, 3) FROM t") == [(300_000_000, "789")]
    con.execute("DELETE FROM t")
    choice = ", ".join(f"'value {i:06} {'.' * 180}'" for i in range(10_000))
    assert len(choice) > 1_900_000
    con.execute(f"CREATE VIEW v AS SELECT id FROM t WHERE text IN ({choice})")
    columns = ", ".join(f"column_with_a_long_name_{'n' * 350}_{i:05} INTEGER" for i in range(5_000))
    assert len(columns) > 1_900_000
    con.execute(f"CREATE TABLE wide({columns})")
    assert replica.rows("SELECT count(*) FROM v") == [(0,)]
    assert replica.rows(
        "SELECT count(*) FROM duckdb_columns() WHERE database_name = 'cp' AND table_name = 'wide'"
    ) == [(5_000,)]

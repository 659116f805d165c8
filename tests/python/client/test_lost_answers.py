"""Goal: an answer that gets lost on the way is asked for again; the statement happens exactly once.

A proxy stands between client and node. When armed it lets the next request through and cuts the connection at the first
byte of the answer, so the node has done what the client does not know about.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

import duckdb
import pytest

import quack
from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster


class CuttingProxy:
    """Forwards bytes; cuts instead of answering while armed."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.requests_to_pass = -1
        self.cuts = 0
        self.closing = False
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def arm(self, requests_to_pass: int) -> None:
        """Pass so many answers, then cut one."""
        self.requests_to_pass = requests_to_pass

    def close(self) -> None:
        self.closing = True
        self.listener.close()

    def _accept(self) -> None:
        while not self.closing:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self.target) as node:
            asked = False
            while not self.closing:
                ready, _, _ = select.select([client, node], [], [], 0.5)
                if client in ready:
                    data = client.recv(65536)
                    if not data:
                        return
                    asked = True
                    node.sendall(data)
                elif node in ready:
                    data = node.recv(65536)
                    if not data:
                        return
                    if asked and self.requests_to_pass == 0:
                        self.requests_to_pass = -1
                        self.cuts += 1
                        return
                    if asked and self.requests_to_pass > 0:
                        self.requests_to_pass -= 1
                    asked = False
                    client.sendall(data)


@pytest.fixture
def proxied(cluster: LocalCluster) -> Iterator[tuple[CuttingProxy, duckdb.DuckDBPyConnection]]:
    """A session whose first node is reached through the proxy."""
    node = cluster.nodes[0]
    proxy = CuttingProxy((node.host, node.port))
    session = quack.connect()
    ca = cluster.folder / "ca" / "ca.pem"
    session.execute(
        f"ATTACH 'quack:127.0.0.1:{proxy.port}' AS cp (TYPE quack, TOKEN '{cluster.token}',"
        f" client_ca_file '{ca}')"
    )
    session.execute("CREATE OR REPLACE TABLE cp.once (i INTEGER)")
    session.execute("CREATE TABLE src AS SELECT range::INTEGER AS i FROM range(3000)")
    session.execute("SELECT count(*) FROM cp.once, src").fetchall()
    yield proxy, session
    session.execute("DROP TABLE IF EXISTS cp.once")
    session.close()
    proxy.close()


def counted(cluster: LocalCluster) -> tuple[int, int]:
    fresh = cluster.connect(cluster.nodes[1], consistency="linearizable")
    row = fresh.execute("SELECT count(*), count(DISTINCT i) FROM cp.once").fetchone()
    fresh.close()
    return row


def test_lost_answer_of_an_insert(cluster, proxied) -> None:
    proxy, session = proxied
    proxy.arm(0)
    session.execute("INSERT INTO cp.once VALUES (1)")
    assert proxy.cuts == 1
    assert counted(cluster) == (1, 1)


@pytest.mark.parametrize("passed", [0, 1, 2, 3, 4])
def test_lost_answer_inside_a_streamed_insert(cluster, proxied, passed: int) -> None:
    """PREPARE, SEND_DATA, FETCH, the end of the result: whichever answer is lost, the rows are there once."""
    proxy, session = proxied
    proxy.arm(passed)
    assert session.execute("INSERT INTO cp.once SELECT i FROM src").fetchall() == [(3000,)]
    assert proxy.cuts == (1 if passed < 4 else 0)
    assert counted(cluster) == (3000, 3000)


def test_lost_answer_of_a_commit(cluster, proxied) -> None:
    proxy, session = proxied
    session.execute("BEGIN")
    session.execute("INSERT INTO cp.once VALUES (7)")
    proxy.arm(0)
    session.execute("COMMIT")
    assert proxy.cuts == 1
    assert counted(cluster) == (1, 1)


def test_lost_answer_inside_a_transaction(cluster, proxied) -> None:
    """The node is still there: the same statement of the same session is asked for again, not run again."""
    proxy, session = proxied
    session.execute("BEGIN")
    session.execute("INSERT INTO cp.once VALUES (1)")
    proxy.arm(0)
    session.execute("INSERT INTO cp.once VALUES (2)")
    assert proxy.cuts == 1
    session.execute("COMMIT")
    assert counted(cluster) == (2, 2)


def test_lost_answer_of_a_query(cluster, proxied) -> None:
    proxy, session = proxied
    session.execute("INSERT INTO cp.once VALUES (5)")
    proxy.arm(0)
    assert session.execute("FROM cp.once").fetchall() == [(5,)]


def test_lost_answer_of_ddl(cluster, proxied) -> None:
    proxy, session = proxied
    proxy.arm(0)
    session.execute("ALTER TABLE cp.once ADD COLUMN j INTEGER")
    assert proxy.cuts == 1
    assert [row[0] for row in session.execute("DESCRIBE cp.once").fetchall()] == ["i", "j"]

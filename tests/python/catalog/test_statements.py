"""Every kind of statement, executed on one replica, arrives bit-exactly on the others."""

from __future__ import annotations

from catalog_replica import Cluster


def test_insert_update_delete_reach_all_replicas(cluster: Cluster) -> None:
    a, b, c = cluster.replicas
    a.con.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, s VARCHAR)")
    a.con.execute("INSERT INTO t SELECT range, 'row ' || range FROM range(5000)")
    b.command("wait")
    b.con.execute("UPDATE t SET s = 'changed' WHERE i % 7 = 0")
    c.command("wait")
    c.con.execute("DELETE FROM t WHERE i % 5 = 0")
    cluster.assert_equal()
    assert a.rows("SELECT count(*), count(*) FILTER (s = 'changed') FROM t") == [(4000, 572)]

"""Goal: ATTACH takes what it knows, refuses the rest in words, and never shows the token."""

from __future__ import annotations

import pathlib
import time

import duckdb
import pytest

import quack
from quack.certs import CertificateAuthority
from quack.cluster.bootstrap import free_ports
from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster


def attach(session: duckdb.DuckDBPyConnection, path: str, options: str) -> None:
    session.execute(f"ATTACH '{path}' AS cp (TYPE quack, {options})")


def free_port() -> int:
    return free_ports(1)[0]


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("quack:127.0.0.1:1", "TOKEN 'abcd', nosuch 1", 'Unrecognized option for attach "nosuch"'),
        ("quack:127.0.0.1:1", "consistency 'session'", "No token"),
        ("quack:127.0.0.1:0", "TOKEN 'abcd'", 'Invalid port "0"'),
        ("quack:127.0.0.1:77777", "TOKEN 'abcd'", 'Invalid port "77777"'),
        ("quack:127.0.0.1:x", "TOKEN 'abcd'", 'Invalid port "x"'),
        ("quack:", "TOKEN 'abcd'", "No host"),
        ("quack:[::1", "TOKEN 'abcd'", "bracket"),
        ("quack:127.0.0.1:1", "TOKEN 'abcd', consistency 'strong'", 'Unknown consistency "strong"'),
        ("quack:127.0.0.1:1", "TOKEN 'abcd', cert_file '/x'", "key_file is missing"),
        ("quack:example.com:1", "TOKEN 'abcd', plaintext true", "loopback hosts only"),
        ("quack:127.0.0.1:1", "TOKEN 'abcd', secret 's'", "not both"),
        ("quack:127.0.0.1:1", "secret 'nosuch'", "does not exist"),
        ("quack:127.0.0.1:1", "TOKEN 'abcd', request_timeout_ms 0", "at least 1"),
        ("quack:127.0.0.1:1", "TOKEN 'abcd', client_ca_file '/nosuch'", "client_ca_file"),
        ("quack:nosuch.invalid:1", "TOKEN 'abcd'", "nosuch.invalid"),
    ],
)
def test_bad_options_are_named(path: str, options: str, message: str) -> None:
    session = quack.connect()
    with pytest.raises(duckdb.Error, match="(?s).*") as error:
        attach(session, path, options)
    assert message in str(error.value)
    assert "abcd" not in str(error.value)
    session.close()


def test_nobody_listens() -> None:
    """A dead address fails at once with the address, not after the whole deadline."""
    session = quack.connect()
    port = free_port()
    begun = time.monotonic()
    with pytest.raises(duckdb.IOException) as error:
        attach(session, f"quack:127.0.0.1:{port}", "TOKEN 'abcd'")
    assert str(port) in str(error.value)
    assert time.monotonic() - begun < 5
    session.close()


def test_token_is_never_shown(cluster: LocalCluster) -> None:
    session = cluster.connect()
    session.execute(f"CREATE SECRET hidden (TYPE quack, TOKEN '{cluster.token}', SCOPE 'quack:h')")
    shown = ""
    for source in ("duckdb_databases()", "duckdb_secrets()", "duckdb_settings()"):
        shown += str(session.execute(f"FROM {source}").fetchall())
    shown += str(session.execute("EXPLAIN FROM cp.query('SELECT 1')").fetchall())
    assert cluster.token not in shown
    session.close()


def test_wrong_token(cluster: LocalCluster) -> None:
    session = quack.connect()
    with pytest.raises(duckdb.Error) as error:
        attach(
            session,
            f"quack:{cluster.nodes[0].endpoint}",
            f"TOKEN 'wrong-token', client_ca_file '{cluster.folder / 'ca' / 'ca.pem'}'",
        )
    assert "uthentication" in str(error.value)
    assert "wrong-token" not in str(error.value)
    session.close()


def test_secret_supplies_token_and_ca(cluster: LocalCluster) -> None:
    session = quack.connect()
    endpoint = cluster.nodes[0].endpoint
    ca = cluster.folder / "ca" / "ca.pem"
    session.execute(
        f"CREATE SECRET (TYPE quack, TOKEN '{cluster.token}', client_ca_file '{ca}', SCOPE 'quack:{endpoint}')"
    )
    session.execute(f"ATTACH 'quack:{endpoint}' AS cp (TYPE quack)")
    assert session.execute("FROM cp.query('SELECT 42')").fetchall() == [(42,)]
    with pytest.raises(duckdb.Error, match="nosuch"):
        session.execute("CREATE SECRET x (TYPE quack, nosuch 'x')")
    session.close()


def test_dead_hosts_are_passed_over(cluster: LocalCluster) -> None:
    session = quack.connect()
    hosts = ",".join([f"127.0.0.1:{free_port()}", cluster.nodes[2].endpoint])
    attach(
        session,
        f"quack:{hosts}",
        f"TOKEN '{cluster.token}', client_ca_file '{cluster.folder / 'ca' / 'ca.pem'}'",
    )
    assert session.execute("FROM cp.query('SELECT 1')").fetchall() == [(1,)]
    session.close()


def test_certificate_of_another_authority(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    CertificateAuthority.create(tmp_path / "other")
    session = quack.connect()
    with pytest.raises(duckdb.Error) as error:
        attach(
            session,
            f"quack:{cluster.nodes[0].endpoint}",
            f"TOKEN 'abcd', client_ca_file '{tmp_path / 'other' / 'ca.pem'}'",
        )
    text = str(error.value)
    assert "not trusted" in text and "issuer" in text and "client_ca_file" in text
    session.close()


def test_certificate_with_another_name(cluster: LocalCluster) -> None:
    session = quack.connect()
    with pytest.raises(duckdb.Error) as error:
        attach(
            session,
            f"quack:{cluster.nodes[0].endpoint}",
            f"TOKEN 'abcd', server_name 'someone-else', client_ca_file '{cluster.folder / 'ca' / 'ca.pem'}'",
        )
    text = str(error.value)
    assert "expected someone-else" in text and cluster.nodes[0].node_id in text
    session.close()


def test_plain_client_at_a_tls_port(cluster: LocalCluster) -> None:
    session = quack.connect()
    with pytest.raises(duckdb.Error) as error:
        attach(session, f"quack:{cluster.nodes[0].endpoint}", "TOKEN 'abcd', plaintext true")
    assert "client_ca_file" in str(error.value) or "closed the connection" in str(error.value)
    session.close()


def test_read_only_attachment(cluster: LocalCluster) -> None:
    writer = cluster.connect()
    writer.execute("CREATE TABLE cp.ro (i INTEGER)")
    session = quack.connect()
    session.execute(
        cluster.attach_sql(cluster.nodes[0], consistency="linearizable").replace(
            "(TYPE", "(READ_ONLY, TYPE"
        )
    )
    assert session.execute("SELECT count(*) FROM cp.ro").fetchall() == [(0,)]
    for statement in (
        "INSERT INTO cp.ro VALUES (1)",
        "DROP TABLE cp.ro",
        "INSERT INTO cp.ro SELECT range FROM range(3)",
    ):
        with pytest.raises(duckdb.Error, match="read-only"):
            session.execute(statement)
    writer.execute("DROP TABLE cp.ro")
    writer.close()
    session.close()


def test_detach_and_attach_again(cluster: LocalCluster) -> None:
    session = cluster.connect()
    session.execute("DETACH cp")
    session.execute(cluster.attach_sql())
    assert session.execute("FROM cp.query('SELECT 1')").fetchall() == [(1,)]
    session.close()

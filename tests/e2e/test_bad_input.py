"""Goal: each wrong input gets its own clear error, and nothing is lost by it."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import time

import duckdb
import pytest
import yaml

import quack
from quack.certs import CertificateAuthority
from quack.cluster.bootstrap import generate_local_configs
from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster


def run_node(config: pathlib.Path, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quack", "node", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def attach(single: LocalCluster, **changes: str) -> duckdb.DuckDBPyConnection:
    options = {
        "TOKEN": single.token,
        "client_ca_file": str(single.folder / "ca" / "ca.pem"),
        **changes,
    }
    listed = ", ".join(f"{key} '{value}'" for key, value in options.items())
    session = quack.connect()
    session.execute(f"ATTACH 'quack:{single.nodes[0].endpoint}' AS cp (TYPE quack, {listed})")
    return session


def test_wrong_token(single):
    with pytest.raises(duckdb.Error, match="(?i)authentication|token") as caught:
        attach(single, TOKEN="not-the-token")
    assert single.token not in str(caught.value)
    assert "not-the-token" not in str(caught.value)


def test_unknown_attach_option(single):
    with pytest.raises(duckdb.Error, match="(?i)unrecognized option.*colour"):
        attach(single, colour="red")


def test_another_authority(single, tmp_path):
    CertificateAuthority.create(tmp_path / "other", name="other CA")
    with pytest.raises(duckdb.Error, match="(?i)certificate") as caught:
        attach(single, client_ca_file=str(tmp_path / "other" / "ca.pem"))
    assert "other" in str(caught.value) and "Fix:" in str(caught.value)


def test_token_is_shown_nowhere(single):
    session = attach(single)
    shown = str(session.execute("FROM duckdb_databases()").fetchall())
    assert single.token not in shown
    session.close()
    assert single.token not in single.nodes[0].log_file.read_text()


def test_port_in_use(single, tmp_path):
    (other,) = generate_local_configs(tmp_path / "o", 1, ports=[single.nodes[0].port])
    done = run_node(other.config_file)
    assert done.returncode == 1
    assert str(single.nodes[0].port) in done.stderr and "in use" in done.stderr


def test_second_process_on_the_same_directory(single, tmp_path):
    document = yaml.safe_load(single.nodes[0].config_file.read_text())
    mode = document["cluster_mode"]
    (port,) = [node.port for node in generate_local_configs(tmp_path / "p", 1)]
    mode["cp_metadata_port"] = port
    mode["cp_metadata_peers"] = [f"n0:voter=quack:127.0.0.1:{port}"]
    file = single.folder / "second.yaml"
    file.write_text(yaml.safe_dump(document))
    done = run_node(file)
    assert done.returncode == 1
    assert str(single.nodes[0].process.pid) in done.stderr
    assert "n0/data" in done.stderr


@pytest.mark.parametrize("what", ["cluster", "node"])
def test_directory_of_another(single, tmp_path, what):
    """A stopped node's directory is given to another cluster, or to another node."""
    with LocalCluster.create(tmp_path / "a", 1) as first:
        first.start()
        first.stop()
        others = generate_local_configs(tmp_path / "b", 2)
        other = others[0 if what == "cluster" else 1]
        shutil.copytree(tmp_path / "a" / "n0" / "data", tmp_path / "b" / other.node_id / "data")
        document = yaml.safe_load(other.config_file.read_text())
        if what == "node":
            mine = yaml.safe_load((tmp_path / "a" / "node0.yaml").read_text())
            document["cluster_mode"]["cluster_id"] = mine["cluster_mode"]["cluster_id"]
            other.config_file.write_text(yaml.safe_dump(document))
        done = run_node(other.config_file)
        assert done.returncode == 1
        if what == "cluster":
            mine = yaml.safe_load((tmp_path / "a" / "node0.yaml").read_text())
            assert mine["cluster_mode"]["cluster_id"] in done.stderr
            assert document["cluster_mode"]["cluster_id"] in done.stderr
        else:
            assert "n0" in done.stderr and "n1" in done.stderr
        # Nothing was lost: the rightful owner starts again.
        first.start()


def test_directory_that_cannot_be_written(tmp_path):
    (node,) = generate_local_configs(tmp_path / "c", 1)
    (tmp_path / "c" / "n0" / "data").write_text("a file, not a directory")
    done = run_node(node.config_file)
    assert done.returncode == 1
    assert "n0/data" in done.stderr


def test_garbage_on_the_port_is_survived(single):
    node = single.nodes[0]
    context = ssl.create_default_context(cafile=single.folder / "ca" / "ca.pem")
    for payload in (os.urandom(4096), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + os.urandom(64)):
        with socket.create_connection((node.host, node.port), timeout=10) as raw:
            raw.sendall(payload)
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(20)
            try:
                while raw.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    for payload in (
        os.urandom(4096),
        b"POST /quack HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nnonsense!",
    ):
        with (
            socket.create_connection((node.host, node.port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as secure,
        ):
            secure.settimeout(60)  # what never becomes a request is dropped after a while
            secure.sendall(payload)
            assert secure.recv(4096)[:5] in (b"", b"HTTP/")
    session = attach(single)
    assert session.execute("SELECT count(*) FROM quack_raft_status('cp')").fetchone() == (1,)
    session.close()
    assert node.running()


def test_a_body_over_the_limit_is_refused_before_it_is_read(single):
    node = single.nodes[0]
    context = ssl.create_default_context(cafile=single.folder / "ca" / "ca.pem")
    with (
        socket.create_connection((node.host, node.port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(
            b"POST /quack HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\nabc"
        )
        answer = secure.recv(4096)
    assert b"413" in answer.splitlines()[0]
    assert b"99999999999999" in answer


@pytest.mark.parametrize(
    ("sql", "match"),
    [
        ("SELEC 1", "(?i)parser error|syntax error"),
        ("FROM cp.no_such_table", "(?i)no_such_table.*does not exist"),
        ("SELECT no_such_column FROM cp.known", "(?i)no_such_column"),
        ("INSERT INTO cp.known VALUES ('abc')", "(?i)convert"),
        ("INSERT INTO cp.known VALUES (NULL)", "(?i)not null"),
        ("INSERT INTO cp.known VALUES (1)", "(?i)duplicate key"),
        ("INSERT INTO cp.known VALUES (-1)", "(?i)check constraint"),
        ("CREATE TABLE cp.known (i INTEGER)", "(?i)already exists"),
        ("SELECT 1 // 0 + i FROM cp.known WHERE error('planted')", "planted"),
    ],
)
def test_sql_errors_keep_their_words(single, sql, match):
    session = attach(single)
    session.execute(
        "CREATE TABLE IF NOT EXISTS cp.known (i INTEGER NOT NULL PRIMARY KEY CHECK (i >= 0))"
    )
    if session.execute("SELECT count(*) FROM cp.known").fetchone() == (0,):
        session.execute("INSERT INTO cp.known VALUES (1)")
    with pytest.raises(duckdb.Error, match=match):
        session.execute(sql).fetchall()
    assert session.execute("FROM cp.known").fetchall() == [(1,)]
    session.close()


def test_nobody_is_listening(tmp_path):
    session = quack.connect()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        begin = time.monotonic()
        session.execute("SET quack_request_timeout_ms = 2000")
        with pytest.raises(duckdb.Error, match=rf"127.0.0.1:{port}"):
            session.execute(f"ATTACH 'quack:127.0.0.1:{port}' AS cp (TYPE quack, TOKEN 'abcd')")
        assert time.monotonic() - begin < 20
    session.close()


@pytest.mark.parametrize("kind", ["cn_only", "wrong_authority"])
def test_a_node_with_a_bad_identity_does_not_start(tmp_path, kind):
    (node,) = generate_local_configs(tmp_path / "c", 1)
    home = tmp_path / "c" / "n0"
    if kind == "cn_only":
        files = CertificateAuthority.open(tmp_path / "c" / "ca").issue_client(home / "x", "n0")
    else:
        other = CertificateAuthority.create(tmp_path / "other", name="other CA")
        files = other.issue_node(home / "x", "n0", hosts=[])
    shutil.copy(files.cert_file, home / "n0.pem")
    shutil.copy(files.key_file, home / "n0.key")
    done = run_node(node.config_file)
    assert done.returncode == 2
    expected = "expected the name DNS:n0" if kind == "cn_only" else "not signed by"
    assert expected in done.stderr

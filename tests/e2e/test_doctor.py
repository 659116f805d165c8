"""Goal: the doctor names what is wrong with a node, its machine and its peers, and how to mend it."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from quack.certs import CertificateAuthority
from quack.cluster.local import LocalCluster


def doctor(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "quack", "doctor", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=env,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def found(document: dict[str, object], check: str, level: str) -> list[str]:
    return [
        f"{item['subject']}: {item['message']} FIX {item['fix']}"
        for item in document["findings"]
        if item["check"] == check and item["level"] == level
    ]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    with LocalCluster.create(tmp_path_factory.mktemp("healthy"), 3) as running:
        running.start()
        yield running


def test_a_healthy_node(healthy):
    code, document = doctor("--config", str(healthy.nodes[0].config_file))
    assert code == 0 and document["ok"], document
    for check in ("versions", "config", "certificate", "data_dir", "disk", "port", "clock", "tls"):
        assert found(document, check, "ok"), check
    assert len(found(document, "tls", "ok")) == 2
    assert "URI:n0" in found(document, "certificate", "ok")[0]
    assert "in use by process" in found(document, "data_dir", "ok")[0]
    assert healthy.token not in json.dumps(document)


def test_by_url(healthy):
    token_file = str(healthy.folder / "token")
    ca_file = str(healthy.folder / "ca" / "ca.pem")
    url = f"quack:{healthy.nodes[1].endpoint}"
    code, document = doctor("--url", url, "--token-file", token_file, "--ca-file", ca_file)
    assert code == 0, document
    assert len(found(document, "status", "ok")) == 4


def test_a_stopped_peer_and_a_foreign_certificate(tmp_path):
    with LocalCluster.create(tmp_path / "c", 3) as running:
        running.start()
        running.nodes[1].kill()
        # The third comes back with an identity of another authority.
        running.nodes[2].kill()
        home = running.nodes[2].config_file.parent / "n2"
        other = CertificateAuthority.create(tmp_path / "other")
        other.issue_node(tmp_path / "foreign", "n2", hosts=["127.0.0.1"])
        for name in ("n2.pem", "n2.key"):
            shutil.copy(tmp_path / "foreign" / name, home / name)
        code, document = doctor("--config", str(running.nodes[2].config_file))
        assert code == 1
        (problem,) = found(document, "certificate", "problem")
        assert "not signed by" in problem and "quack certs issue --node n2" in problem
        (unreachable,) = found(document, "reach", "problem")
        assert "n1" in unreachable and "start the node" in unreachable
        code, document = doctor("--config", str(running.nodes[0].config_file))
        assert code == 1
        assert len(found(document, "reach", "problem")) == 2
        assert any("n1" in words for words in found(document, "seen_from", "problem"))


def test_wrong_files(tmp_path: pathlib.Path):
    cluster = LocalCluster.create(tmp_path / "c", 1)
    config = cluster.nodes[0].config_file
    text = config.read_text()
    config.write_text(text + "colour: red\n")
    code, document = doctor("--config", str(config))
    assert code == 1
    assert any("colour" in words for words in found(document, "config", "problem"))
    config.write_text(text)
    data = config.parent / "n0" / "data"
    data.mkdir()
    (data / "identity.json").write_text(json.dumps({"cluster_id": "x", "node_id": "n0"}))
    code, document = doctor("--config", str(config))
    assert code == 1
    (problem,) = found(document, "data_dir", "problem")
    assert "belongs to cluster_id 'x'" in problem
    assert found(document, "port", "ok")


def test_the_port_of_somebody_else(tmp_path: pathlib.Path):
    import socket

    cluster = LocalCluster.create(tmp_path / "c", 1)
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", cluster.nodes[0].port))
        owner.listen()
        code, document = doctor("--config", str(cluster.nodes[0].config_file))
    assert code == 1
    (problem,) = found(document, "port", "problem")
    assert "ss -ltnp" in problem

"""Goal: the README tells the truth: its shell commands and its Python run as they stand there."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from quack.cluster.local import LocalCluster

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def shell_lines() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"make ([a-z-]+)", README)
    assert {"demo", "test", "build", "help", "sim"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.cluster
def test_python_example(tmp_path, monkeypatch):
    (example,) = (block for block in blocks("python") if "grants" in block)
    with LocalCluster.create(tmp_path / "dev", 3) as cluster:
        cluster.start()
        ports = [node.port for node in cluster.nodes]
        example = example.replace("/tmp/quack-dev", str(tmp_path / "dev"))
        names = {"ports": ports}
        exec(compile(example, "README.md", "exec"), names)
        rows = names["con"].execute("SELECT who, what FROM cp.grants ORDER BY who").fetchall()
        assert rows == [("ann", "admin"), ("bob", "write")]
        names["con"].close()


@pytest.mark.cluster
def test_sql_of_groups(cluster):
    (script,) = (block for block in blocks("sql") if "quack_group" in block)
    session = cluster.connect()
    for statement in script.splitlines():
        session.execute(statement)
    rows = session.execute(
        "SELECT table_name, count(*) FROM quack_table_groups('cp') GROUP BY ALL ORDER BY ALL"
    )
    assert rows.fetchall() == [("copy", 1), ("events", 16)]
    session.close()


@pytest.mark.cluster
def test_changes_of_a_table(cluster):
    (script,) = (block for block in blocks("sql") if "quack_changes" in block)
    session = cluster.connect()
    answers = [session.execute(statement).fetchall() for statement in script.splitlines()]
    assert [row[0] for row in answers[5]] == ["insert"] * 2 + [
        "update_preimage",
        "update_postimage",
    ]
    (example,) = (block for block in blocks("python") if "quack import changes" in block)
    hosts = ",".join(node.endpoint for node in cluster.nodes)
    example = example.replace("127.0.0.1:9494,127.0.0.1:9495,127.0.0.1:9496", hosts)
    names = {"token": cluster.token, "ca_file": cluster.folder / "ca" / "ca.pem"}
    exec(compile(example, "README.md", "exec"), names)
    assert names["change"].row == {"id": 1, "stock": 9}
    assert names["resume"]["applied"]
    session.close()


def test_shell_commands(tmp_path):
    """All commands but those that run until stopped or need a cluster; they have their own tests."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    ran = 0
    for line in shell_lines():
        if not line.startswith("python -m quack"):
            continue
        if any(
            f" {word} " in line
            for word in (
                "dev",
                "node",
                "status",
                "cluster",
                "doctor",
                "log",
                "backup",
                "restore",
                "spark",
                "changes",
                "pipeline",
            )
        ):
            continue
        words = line.replace("/tmp/", f"{tmp_path}/").split()
        done = subprocess.run(
            [sys.executable, *words[1:]],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        ran += 1
    assert ran == 5

"""Goal: a session of Spark Connect reads and writes like any other."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

DRIVER = pathlib.Path(__file__).parent / "connect_driver.py"

pytestmark = pytest.mark.cluster


def test_a_connect_session_writes_once_and_reads(options, sql, table, tmp_path):
    given = tmp_path / "given.json"
    given.write_text(json.dumps({"options": options, "table": table}))
    ran = subprocess.run(
        [sys.executable, str(DRIVER), str(given)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["session"].startswith("pyspark.sql.connect")
    assert (said["rows"], said["total"], said["s"]) == (1000, 499_500, "name 999")
    assert sql(f"SELECT count(*) FROM {table}") == [(1000,)]
    assert f"cannot read table main.no_{table}" in said["failure"]
    assert options["token"] not in ran.stdout + ran.stderr

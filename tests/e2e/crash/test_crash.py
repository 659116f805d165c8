"""Goal: a node starts by itself after a crash at any point, and nothing acknowledged is lost.

A few loops of `make crash` with a fixed seed; CRASH_SEED draws others.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.timeout(300)
def test_a_few_crashes(tmp_path: pathlib.Path) -> None:
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests" / "e2e")])
    seed = os.environ.get("CRASH_SEED", "1")
    done = subprocess.run(
        [sys.executable, "-m", "crash", "--loops", "8", "--seed", seed, "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout.strip(), done.stderr[-4000:]
    document = json.loads(done.stdout.strip().splitlines()[-1])
    assert document["ok"] is (done.returncode == 0)
    assert document["ok"], f"{json.dumps(document, indent=1)}\n{done.stderr[-4000:]}"
    assert document["recoveries"] == 8 and document["refusals"] == 0
    assert document["points"] >= 2 and document["kills"] >= 1 and document["acknowledged"] >= 20

"""Goal: the main job holds on every change. The demo itself runs, smaller, with two kills."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

DEMO = pathlib.Path(__file__).with_name("demo.py")


def test_load_survives_killed_leaders():
    done = subprocess.run(
        [sys.executable, DEMO, "--rows", "40960", "--kills", "2"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.strip(), done.stderr[-4000:]
    document = json.loads(done.stdout.strip().splitlines()[-1])
    assert document["ok"], f"{json.dumps(document)}\n{done.stderr[-4000:]}"
    assert (document["lost"], document["duplicated"]) == (0, 0)
    assert len(document["failovers_ms"]) == 2
    assert document["hash_equal"]

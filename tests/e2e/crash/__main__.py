"""Entry point: `python -m crash --loops 200 --seed 7`.

The last line of standard output is one JSON object with `ok` and the figures; the exit code is 0
only when `ok` is true. After a failure the nodes' logs and data lie in the folder named there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import secrets
import sys
import time

from crash.disk import build_disk
from crash.runs import run


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash", description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=200)
    parser.add_argument("--seed", type=int, help="draws everything; chosen when omitted")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("build/crash"))
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    folder = arguments.dir.resolve() / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    begun = time.monotonic()
    figures = run(folder, build_disk(folder), arguments.loops, seed, _say)
    report = {
        "ok": figures.ok,
        "seed": seed,
        "loops": arguments.loops,
        "seconds": round(time.monotonic() - begun, 1),
        **dataclasses.asdict(figures),
        "folder": str(folder),
    }
    print(json.dumps(report))
    return 0 if figures.ok else 1


if __name__ == "__main__":
    sys.exit(main())

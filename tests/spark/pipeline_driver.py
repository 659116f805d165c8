"""A pipeline in a process of its own that stops before it commits: python pipeline_driver.py FILE.

The file is JSON with the text of a job and the token. Says "written" when every file is in the
storage and only the commit is left; then it waits to be killed.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys

import quack.pipeline.context
from quack.pipeline import Job, run


def stop_here(*_: object) -> None:
    print("written", flush=True)
    signal.pause()


def main() -> int:
    given = json.loads(pathlib.Path(sys.argv[1]).read_text())
    os.environ["QUACK_PIPELINE_TOKEN"] = given["token"]
    quack.pipeline.context.commit_once = stop_here
    run(Job.model_validate_json(given["job"]), master="local[1]")
    return 1


if __name__ == "__main__":
    sys.exit(main())

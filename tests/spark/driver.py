"""A driver in a process of its own, for tests that kill it: python driver.py FILE.

The file is JSON: options of the write, save mode, first and last id, and how long each of the
three tasks takes in milliseconds. Says "started" on standard output when the job begins.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import quack.spark


def main() -> int:
    given = json.loads(pathlib.Path(sys.argv[1]).read_text())
    spark = quack.spark.start_session(
        "local[2,3]", spark__ui__enabled="false", spark__sql__shuffle__partitions="2"
    )
    pause_s = given["task_ms"] / 1000

    def slow(batches):
        for batch in batches:
            yield batch
            time.sleep(pause_s)

    frame = spark.range(given["first"], given["last"], 1, 3).mapInArrow(slow, "id bigint")
    print("started", flush=True)
    frame.write.format("quack").options(**given["options"]).mode(given["save_mode"]).save()
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

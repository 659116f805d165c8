"""A driver in a process of its own, for tests that kill it: python driver.py FILE.

The file is JSON. For a batch write: options of the write, save mode, first and last id, and how
long each of the three tasks takes in milliseconds. For a stream: options of the write, the source
and checkpoint folders, one source file per micro-batch; or, instead of the source folder, options
of a stream of changes. Says "started" when the job begins.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import quack.spark


def write_batch(spark, given) -> None:
    pause_s = given["task_ms"] / 1000

    def slow(batches):
        for batch in batches:
            yield batch
            time.sleep(pause_s)

    frame = spark.range(given["first"], given["last"], 1, 3).mapInArrow(slow, "id bigint")
    print("started", flush=True)
    frame.write.format("quack").options(**given["options"]).mode(given["save_mode"]).save()


def write_stream(spark, given) -> None:
    if "changes" in given:
        lines = spark.readStream.format("quack").options(**given["changes"]).load()
    else:
        source = spark.readStream.schema("id bigint, k int").option("maxFilesPerTrigger", 1)
        lines = source.json(given["source"])
    stream = lines.writeStream.format("quack").options(**given["options"])
    query = (
        stream.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    )
    print("started", flush=True)
    query.awaitTermination()


def main() -> int:
    given = json.loads(pathlib.Path(sys.argv[1]).read_text())
    settings = {
        "spark__ui__enabled": "false",
        "spark__sql__shuffle__partitions": "2",
        **given.get("settings", {}),
    }
    spark = quack.spark.start_session(given.get("master", "local[2,3]"), **settings)
    if "checkpoint" in given:
        write_stream(spark, given)
    else:
        write_batch(spark, given)
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

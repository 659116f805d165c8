"""A Spark Connect session in a process of its own: python connect_driver.py FILE.

The file is JSON: options of the cluster, the name of a fresh table. Prints what it saw as one line of JSON.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["SPARK_TESTING"] = "1"  # the server takes a free port

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import quack.spark


def main() -> int:
    given = json.loads(pathlib.Path(sys.argv[1]).read_text())
    where, table = given["options"], given["table"]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    frame = spark.range(1000).selectExpr("id", "'name ' || id AS s")
    for _ in range(2):  # the second run of the same job changes nothing
        writing = frame.write.format("quack").options(**where, table=table, create_table="true")
        writing.option("job_id", f"fill {table}").mode("append").save()
    quack.spark.register(spark)
    read = spark.read.format("quack").options(**where, table=table).load()
    (row,) = read.selectExpr("count(*) n", "sum(id) total", "max(s) s").collect()
    try:
        spark.read.format("quack").options(**where, table=f"no_{table}").load().collect()
        failure = ""
    except PySparkException as error:
        failure = str(error)
    said = {
        "session": type(spark).__module__,
        "rows": row.n,
        "total": row.total,
        "s": row.s,
        "failure": failure,
    }
    print(json.dumps(said), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

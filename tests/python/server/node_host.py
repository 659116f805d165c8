"""A node process for tests: the start parameters are the first line of standard input, then one SQL text per line.

Each line is answered by one JSON line: {"rows": [...]} or {"error": "..."}. End of input stops the node cleanly.
"""

from __future__ import annotations

import json
import sys

import duckdb

from quack.extension import connect


def answer(document: dict[str, object]) -> None:
    print(json.dumps(document, default=str), flush=True)


def main() -> None:
    session = connect()
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        try:
            if number == 0:
                cursor = session.execute("CALL quack_node_start(?)", [json.dumps(request)])
            else:
                cursor = session.execute(request["sql"])
            answer({"rows": cursor.fetchall()})
        except duckdb.Error as error:
            answer({"error": str(error)})
    try:
        session.execute("CALL quack_node_stop()")
    except duckdb.Error as error:
        answer({"error": str(error)})
    session.close()


if __name__ == "__main__":
    main()

"""Run by `make wheel` in a fresh environment: the installed wheel runs a voter and serves SQL."""

from __future__ import annotations

import pathlib
import tempfile

import quack
from quack.cluster.local import LocalCluster


def main() -> None:
    session = quack.connect()
    assert session.execute("SELECT 42").fetchone() == (42,)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster.create(pathlib.Path(folder) / "c", 1) as cluster,
    ):
        cluster.start()
        client = cluster.connect()
        client.execute("CREATE TABLE cp.t AS SELECT range AS i FROM range(1000)")
        assert client.execute("SELECT sum(i) FROM cp.t").fetchone() == (499500,)
        client.close()
        assert cluster.stop() == {"n0": 0}
    print("wheel ok:", quack.__version__, quack.extension_path())


if __name__ == "__main__":
    main()

"""Sessions for the client tests; the clusters come from tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from quack.cluster.local import LocalCluster


@pytest.fixture
def session(cluster: LocalCluster) -> Iterator[duckdb.DuckDBPyConnection]:
    """A client session attached to all nodes as ``cp``, reading its own writes."""
    opened = cluster.connect()
    yield opened
    opened.close()


@pytest.fixture
def other(cluster: LocalCluster) -> Iterator[duckdb.DuckDBPyConnection]:
    """Another client, on another node, that always reads fresh."""
    opened = cluster.connect(cluster.nodes[1], consistency="linearizable")
    yield opened
    opened.close()

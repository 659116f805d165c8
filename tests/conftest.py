"""Fixtures shared by the Python tests."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from quack.cluster.local import LocalCluster

PORTS = (12_000, 30_000)  # what quack picks free ports from, by default


def pytest_configure() -> None:
    """Give each worker its own ports: a node that is down must not lose its port to the neighbour."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "")
    if name:
        number = int(name.removeprefix("gw"))
        share = (PORTS[1] - PORTS[0]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        low = PORTS[0] + number * share
        os.environ["QUACK_PORT_RANGE"] = f"{low}-{low + share - 1}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three voters over mTLS as real processes; shared by the tests of one module."""
    with LocalCluster.create(tmp_path_factory.mktemp("cluster"), 3) as running:
        running.start()
        yield running


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One voter over mTLS."""
    with LocalCluster.create(tmp_path_factory.mktemp("single"), 1) as running:
        running.start()
        yield running


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty folder."""
    return tmp_path

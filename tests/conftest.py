"""Fixtures shared by the Python tests."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from quack.cluster.local import LocalCluster


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

"""Fixtures: replicas of the catalog inside this process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_replica import Cluster, Replica, extension_path


@pytest.fixture(scope="session", autouse=True)
def _need_extension() -> None:
    if not Path(extension_path()).exists():
        pytest.skip(f"{extension_path()} is not built (target quack_catalog_test)")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three replicas."""
    made = Cluster(tmp_path, 3)
    yield made
    made.close()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    """A single replica."""
    made = Replica(tmp_path / "n0.db", uuid.uuid4().hex, "n0")
    yield made
    made.close()

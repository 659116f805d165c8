"""Fixtures of the server's tests."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import quack_wire as wire
from server_node import Node, make_cluster, make_single, wait_leader


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One voter on plain loopback, shared by the tests of one module."""
    running = make_single(tmp_path_factory.mktemp("node")).start()
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture
def session(node: Node) -> Iterator[wire.Session]:
    """A fresh version 3 session on the shared node."""
    opened = node.session()
    yield opened
    opened.http.close()
    closing = node.session()
    closing.connection_id, closing_id = opened.connection_id, closing.connection_id
    for connection_id in (closing.connection_id, closing_id):
        closing.connection_id = connection_id
        try:
            closing.disconnect()
        except wire.QuackError:
            pass
    closing.http.close()


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Three voters over mTLS, started, with a leader."""
    nodes = make_cluster(tmp_path_factory.mktemp("trio"))
    try:
        for one in nodes:
            one.start()
        wait_leader(nodes)
        yield nodes
    finally:
        for one in nodes:
            one.stop()

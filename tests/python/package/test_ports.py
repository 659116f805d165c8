"""Goal: nodes on one machine get ports that nobody else is given, and a range without room is named."""

from __future__ import annotations

import socket

import pytest

from quack.cluster.bootstrap import free_ports
from quack.errors import ConfigError


@pytest.fixture
def small_range(monkeypatch: pytest.MonkeyPatch) -> range:
    """Four neighbouring ports that are free, as the range to pick from."""
    low = next(p for p in free_ports(200) if free_ports_from(p, 4))
    monkeypatch.setenv("QUACK_PORT_RANGE", f"{low}-{low + 3}")
    return range(low, low + 4)


def free_ports_from(low: int, count: int) -> bool:
    """Whether each of the ports can be bound."""
    for port in range(low, low + count):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def test_each_port_is_handed_out_once_while_there_are_others(small_range: range) -> None:
    first = free_ports(2)
    assert len(set(first)) == 2
    assert set(first) <= set(small_range)
    free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first[0]))
        assert first[0] not in free_ports(3)
        with pytest.raises(ConfigError, match=r"4 free ports are needed, and .* has 3"):
            free_ports(4)


@pytest.mark.parametrize("text", ["", "9", "5-", "3000-2000", "80-90", "60000-70000", "a-b"])
def test_a_range_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("QUACK_PORT_RANGE", text)
    with pytest.raises(ConfigError, match="QUACK_PORT_RANGE is .*expected LOW-HIGH"):
        free_ports(1)

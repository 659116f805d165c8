"""Goal: member commands outlive the loss of the node that they talk to, and tell a refusal at once."""

from __future__ import annotations

from typing import Any

import pytest

from quack.cluster.members import MemberOperations
from quack.errors import ClusterError

ROWS = [
    {"node_id": "n0", "role": "voter", "address": "h0:1", "is_leader": True, "lag": 0},
    {"node_id": "n1", "role": "voter", "address": "h1:1", "is_leader": False, "lag": 0},
]


class Session:
    """Answers as a node that leads, or refuses."""

    def __init__(self, refusal: str | None) -> None:
        self.refusal = refusal

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rows(self, function: str, *_: str | None) -> list[dict[str, Any]]:
        if function == "quack_members":
            return ROWS
        if self.refusal:
            raise ClusterError(self.refusal)
        return [{"result": "node 'n1' leads now", "leader_id": "n1"}]


class Target:
    """A cluster of which some attempts to attach fail."""

    def __init__(self, failures: dict[int, str], refusal: str | None = None) -> None:
        self.hosts = "h0:1"
        self.failures = failures
        self.refusal = refusal
        self.opened = 0

    def each(self) -> list[Target]:
        return [self]

    def at(self, host: str) -> Target:
        return self

    def open(self, *, timeout_s: float = 0) -> Session:
        self.opened += 1
        if self.opened in self.failures:
            raise ClusterError(self.failures[self.opened])
        return Session(self.refusal)


def operations(target: Target) -> MemberOperations:
    return MemberOperations(target, 30, lambda words: None)  # type: ignore[arg-type]


def test_step_down_looks_again_when_the_leader_is_lost_meanwhile() -> None:
    target = Target({2: "closed the connection during the TLS handshake [quack:unavailable]"})
    answer = operations(target).step_down(None)
    assert answer == {"result": "node 'n1' leads now", "leader_id": "n1"}
    assert target.opened == 4


def test_step_down_tells_a_refusal_at_once() -> None:
    target = Target({}, "no other voter is caught up [quack:unavailable]")
    with pytest.raises(ClusterError, match="no other voter is caught up"):
        operations(target).step_down(None)
    assert target.opened == 2


def test_step_down_does_not_repeat_what_time_does_not_cure() -> None:
    target = Target({2: "the token is wrong [quack:unauthorized]"})
    with pytest.raises(ClusterError, match="the token is wrong"):
        operations(target).step_down(None)
    assert target.opened == 2

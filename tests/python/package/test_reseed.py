"""Goal: a node is told to give its data up only when the other voters alone are a sound majority."""

from __future__ import annotations

from typing import Any

import pytest

from quack.cluster.members import MemberOperations
from quack.errors import ClusterError, code_of

GOAL = 100
TRANSFER = {
    "direction": "receive",
    "peer": "n0",
    "state": "receiving",
    "bytes_done": 1_500_000,
    "bytes_total": 6_000_000,
    "bytes_per_second": 500_000,
    "seconds_left": 9,
    "resumed": 1,
}


class Fake:
    """Nodes by address; the first one leads. Each look at a node that is behind lets it go on."""

    def __init__(self, voters: int, learners: int = 0) -> None:
        names = [f"n{i}" for i in range(voters + learners)]
        self.roles = {n: "voter" if i < voters else "learner" for i, n in enumerate(names)}
        self.applied = dict.fromkeys(names, GOAL)
        self.degraded: set[str] = set()
        self.down: set[str] = set()
        self.leader: str | None = "n0"
        self.reseeded: list[str] = []

    def members(self, asked: str) -> list[dict[str, Any]]:
        return [
            {
                "node_id": name,
                "role": role,
                "address": f"{name}:1",
                "is_leader": name == self.leader,
                "lag": 0 if asked == self.leader else None,
            }
            for name, role in self.roles.items()
        ]

    def status(self, name: str) -> dict[str, Any]:
        applied = self.applied[name]
        self.applied[name] = min(GOAL, applied + 40)
        return {
            "node_id": name,
            "commit_index": GOAL,
            "applied_index": applied,
            "degraded": name in self.degraded,
            "reason": "its state is wrong" if name in self.degraded else "",
        }


class Target:
    """One node of the fake, and a session with it."""

    def __init__(self, fake: Fake, hosts: str = "n0:1") -> None:
        self.fake, self.hosts = fake, hosts
        self.name = hosts.split(":")[0]

    def each(self) -> list[Target]:
        return [Target(self.fake, f"{name}:1") for name in self.fake.roles]

    def at(self, host: str) -> Target:
        return Target(self.fake, host)

    def open(self, *, timeout_s: float = 0) -> Target:
        if self.name in self.fake.down:
            raise ClusterError(f"{self.hosts}: connection refused [quack:unavailable]")
        return self

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rows(self, function: str, *arguments: str | None) -> list[dict[str, Any]]:
        if function == "quack_members":
            return self.fake.members(self.name)
        if function == "quack_raft_status":
            return [self.fake.status(self.name)]
        if function == "quack_snapshot_transfers":
            return [TRANSFER | {"direction": "send"}, TRANSFER]
        assert (function, arguments) == ("quack_reseed", (self.name,))
        self.fake.reseeded.append(self.name)
        self.fake.degraded.discard(self.name)
        self.fake.applied[self.name] = 0
        return [{"result": f"node '{self.name}' moves its catalog aside and restarts"}]


def reseed(fake: Fake, node_id: str, timeout_s: float = 30) -> tuple[str, list[str]]:
    said: list[str] = []
    operations = MemberOperations(Target(fake), timeout_s, said.append)  # type: ignore[arg-type]
    return operations.reseed(node_id), said


def refusal(fake: Fake, node_id: str, timeout_s: float = 30) -> str:
    with pytest.raises(ClusterError) as caught:
        reseed(fake, node_id, timeout_s)
    assert fake.reseeded == []
    assert code_of(caught.value) == "unavailable"
    return str(caught.value)


def test_a_latched_voter_is_reseeded_and_its_progress_told() -> None:
    fake = Fake(3)
    fake.degraded = {"n2"}
    answer, said = reseed(fake, "n2")
    assert answer == "node 'n2' has the data again, up to index 100"
    assert fake.reseeded == ["n2"]
    assert (
        "node 'n2' has applied 40 of 100, gets a snapshot from node 'n0': receiving, "
        "1.5 of 6.0 MB (25 %), 0.5 MB/s, 9 s left, resumed 1 times" in said
    )


def test_a_status_asks_every_member_and_says_who_does_not_answer() -> None:
    fake = Fake(2, learners=1)
    fake.down = {"n1"}
    rows = MemberOperations(Target(fake), 30, print).status()  # type: ignore[arg-type]
    assert [(row["node_id"], row["answers"]) for row in rows] == [
        ("n0", True),
        ("n1", False),
        ("n2", True),
    ]
    assert "connection refused" in rows[1]["error"] and rows[1]["status"] is None
    assert rows[2]["status"]["node_id"] == "n2" and len(rows[2]["transfers"]) == 2


@pytest.mark.parametrize(("voters", "refused"), [(3, True), (4, True), (5, False)])
def test_a_voter_that_does_not_answer_may_be_missed_only_by_a_majority(
    voters: int, refused: bool
) -> None:
    fake = Fake(voters)
    fake.degraded, fake.down = {"n2"}, {"n1"}
    if not refused:
        reseed(fake, "n2")
        return
    words = refusal(fake, "n2")
    assert "n1: n1:1: connection refused" in words and "nothing was changed" in words


def test_another_voter_out_of_service_is_no_help() -> None:
    fake = Fake(3)
    fake.degraded = {"n1", "n2"}
    words = refusal(fake, "n2")
    assert "2 of the 3 voters are needed, and 1 of them" in words
    assert "n1: out of service: its state is wrong" in words


def test_voters_that_are_behind_are_waited_for() -> None:
    fake = Fake(3)
    fake.applied["n1"] = 30
    answer, said = reseed(fake, "n2")
    assert fake.reseeded == ["n2"] and "up to index 100" in answer
    assert any("n1: has applied 30 of 100" in words for words in said)
    fake = Fake(3)
    fake.applied["n1"] = -(10**9)
    assert "not done within" in refusal(fake, "n2", timeout_s=1)


def test_a_learner_needs_only_the_voters() -> None:
    fake = Fake(1, learners=1)
    reseed(fake, "n1")
    assert fake.reseeded == ["n1"]


def test_without_another_leader_nothing_is_done() -> None:
    assert "node 'n0' leads" in refusal(Fake(3), "n0")
    fake = Fake(3)
    fake.leader = None
    assert "no node leads" in refusal(fake, "n1")
    with pytest.raises(ClusterError, match="no member of this cluster"):
        reseed(Fake(3), "n7")

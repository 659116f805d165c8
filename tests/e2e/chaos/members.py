"""Changes the voter set under load: 3 to 5 and back, the leader included, lost disks replaced.

A register workload runs all the time. Every round draws one change that the present set allows; in
some of them a node is killed or paused in the middle. A node that was removed comes back with an
empty disk, as a new member. At the end the register history is linearizable, no write is lost, and
all members hold one state.
"""

from __future__ import annotations

import pathlib
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb

from chaos.cluster import ChaosCluster, ChaosNode
from chaos.history import load
from chaos.report import operations
from chaos.stage import ClientProcess
from chaos.workloads import WORKLOADS
from quack.cluster.members import MemberOperations
from quack.cluster.target import Target
from quack.errors import ClusterError, code_of

VOTERS_MIN, VOTERS_MAX = 3, 5
_CHANGE_S = 120.0


class Members:
    """The nodes of the run and what is done to them."""

    def __init__(self, cluster: ChaosCluster, seed: int) -> None:
        self.cluster = cluster
        self.draw = random.Random(f"members {seed}")
        self.spare = [host for host in cluster.network.hosts if host.startswith("n")]
        self.spare = [host for host in self.spare if host not in self.names()]
        self.retired: dict[str, ChaosNode] = {}

    def names(self) -> list[str]:
        return [node.node_id for node in self.cluster.nodes]

    def operations(self) -> MemberOperations:
        """Reach the cluster through all present members."""
        hosts = []
        for node in self.cluster.nodes:
            host, port = self.cluster.network.dial("observer", node.node_id)
            hosts.append(f"{host}:{port}")
        self.draw.shuffle(hosts)
        ca_file = self.cluster.folder / "ca" / "ca.pem"
        target = Target(",".join(hosts), self.cluster.token, ca_file)
        return MemberOperations(target, _CHANGE_S, lambda words: None)

    def choose(self) -> str:
        """Draw a change that is possible now."""
        count = len(self.cluster.nodes)
        possible = ["replace", "demote_promote", "stepdown"]
        if count < VOTERS_MAX:
            possible += ["add"] * 3
        if count > VOTERS_MIN:
            possible += ["remove"] * 2 + ["remove_leader"] * 2
        return self.draw.choice(possible)

    def victim(self, leader: bool = False) -> ChaosNode:
        found = self.cluster.wait_leader(60)
        if leader and isinstance(found, ChaosNode):
            return found
        return self.draw.choice([node for node in self.cluster.nodes if node is not found])

    def add(self) -> str:
        name = self.draw.choice(self.spare)
        node = self.retired.pop(name, None)
        if node is None:
            node = self.cluster.prepare(name)
        node.start()
        try:
            said = self.operations().add(name)
        except ClusterError:
            node.stop()
            raise
        self.spare.remove(name)
        self.cluster.nodes.append(node)
        return f"{name}: {said}"

    def remove(self, node: ChaosNode | None = None) -> str:
        node = node or self.victim()
        said = self.operations().remove(node.node_id)
        self._retire(node)
        return f"{node.node_id}: {said}"

    def remove_leader(self) -> str:
        return self.remove(self.victim(leader=True))

    def _retire(self, node: ChaosNode) -> None:
        """A removed node goes on for a while (it must not disturb), then its disk is cleared."""
        self.cluster.nodes.remove(node)
        time.sleep(self.draw.uniform(0, 1.5))  # not a wait: how long it goes on
        self.cluster.forget(node)
        node.stop()
        shutil.rmtree(self.cluster.folder / node.node_id / "data", ignore_errors=True)
        self.retired[node.node_id] = node
        self.spare.append(node.node_id)

    def replace(self, node: ChaosNode | None = None) -> str:
        """A machine is lost with its disk; an empty one takes its name."""
        node = node or self.victim(leader=self.draw.random() < 0.3)
        self.cluster.forget(node)
        node.kill()
        shutil.rmtree(self.cluster.folder / node.node_id / "data")
        node.start()
        return f"{node.node_id}: {self.operations().replace(node.node_id)}"

    def demote_promote(self) -> str:
        node = self.victim(leader=self.draw.random() < 0.3)
        demoted = self.operations().demote(node.node_id)
        return f"{node.node_id}: {demoted}; {self.operations().promote(node.node_id)}"

    def stepdown(self) -> str:
        """Ask until it is done: a successor on a busy machine may miss its election."""
        deadline = time.monotonic() + _CHANGE_S
        while True:
            try:
                return self.operations().step_down(None)["result"]
            except ClusterError as error:
                if code_of(error) != "unavailable" or time.monotonic() > deadline:
                    raise


def run(
    cluster: ChaosCluster, folder: pathlib.Path, seed: int, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Do that many changes; returns the report."""
    cluster.start()
    workload = WORKLOADS["registers"]
    workload.create(cluster.session(cluster.nodes[0]))
    members = Members(cluster, seed)
    problems: list[str] = []
    done: Counter[str] = Counter()
    times: list[dict[str, Any]] = []
    clients = ClientProcess(
        cluster, folder, "registers", seed=seed, clients=6, think_ms=20, timeout_ms=10_000
    )
    try:
        for number in range(rounds):
            kind = members.choose()
            begun = time.monotonic()
            strike = members.draw.random() < 0.25 and kind != "replace"
            try:
                said = _with_strike(members, strike, getattr(members, kind))
            except (ClusterError, TimeoutError, duckdb.Error) as error:
                problems.append(f"round {number}: {kind}: {type(error).__name__}: {error}")
                break
            done[kind] += 1
            times.append(
                {
                    "kind": kind,
                    "seconds": round(time.monotonic() - begun, 2),
                    "said": said,
                    "strike": strike,
                }
            )
            say(
                f"{number + 1}: {kind} {'under attack ' if strike else ''}{said}; now {members.names()}"
            )
        clients.ask_to_stop()
        told = clients.finish()
    finally:
        clients.end()
    problems += told["failures"] + [f"client stuck: {who}" for who in told["stuck"]]
    history = load(clients.history)
    final: dict[str, Any] = {}
    hashes: set[str] = set()
    try:
        cluster.start_all()
        cluster.wait_equal(90)
        for node in cluster.nodes:
            session = cluster.session(node, "linearizable")
            final[node.node_id] = workload.end_state(session)
            rows = session.execute("SELECT * FROM quack_state_hash('cp') ORDER BY ALL").fetchall()
            hashes.add(str(rows))
    except (TimeoutError, duckdb.Error) as error:
        problems.append(f"end state: {error}")
    verdict = workload.check(history, final)
    problems += verdict.anomalies
    if len(hashes) != 1:
        problems.append("state hashes differ")
    document = {
        "ok": not problems,
        "seed": seed,
        "changes": sum(done.values()),
        "kinds": dict(done),
        "members": members.names(),
        "hash_equal": len(hashes) == 1,
        "operations": {"registers": operations(history)},
        "verdicts": {"registers": verdict.document()},
        "times": times,
        "problems": problems,
    }
    if problems:
        document["logs"] = {node.node_id: node.log_tail(40) for node in cluster.nodes}
    return document


def _with_strike(members: Members, strike: bool, change: Callable[[], str]) -> str:
    """Do a change; meanwhile, perhaps, a member dies or stands still for a moment."""
    if not strike:
        return change()
    node = members.draw.choice(members.cluster.nodes)
    kill, wait_s = members.draw.random() < 0.5, members.draw.uniform(0, 0.5)
    pause_s = members.draw.uniform(0.1, 1.5)

    def attack() -> None:
        time.sleep(wait_s)  # not a wait for anything: where in the change it strikes
        if not node.running():
            return  # it was removed meanwhile
        if kill:
            node.kill()
        else:
            node.pause()
        time.sleep(pause_s)
        node.resume()
        if node in members.cluster.nodes:
            node.start()

    thread = threading.Thread(target=attack)
    thread.start()
    try:
        return change()
    finally:
        thread.join()

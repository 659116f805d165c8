"""Faults: drawn from a seed before the run, applied one after the other, always undone.

A fault's target may be a role ("leader", "follower"); which node that is, is decided when it strikes
and noted in the record. Everything else - kinds, targets, lengths, strengths - comes from the seed.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chaos.cluster import ChaosCluster, ChaosNode

if TYPE_CHECKING:  # it uses the report, which uses strikes
    from chaos.members import Members

#: Longest time a process stands still, in seconds.
PAUSE_S_MAX = 30.0


@dataclasses.dataclass
class Fault:
    """One drawn fault.

    Attributes:
        kind: a key of `KINDS`.
        gap_s: quiet time before it.
        hold_s: how long it lasts.
        parameters: kind-specific, all drawn.
        weather: what lies on every link meanwhile, as for the proxies; None for most faults.

    """

    kind: str
    gap_s: float
    hold_s: float
    parameters: dict[str, Any]
    weather: dict[str, Any] | None = None


@dataclasses.dataclass
class Strike:
    """What a fault did, for the report. Times are nanoseconds of the monotonic clock."""

    fault: Fault
    began: int
    ended: int = 0
    targets: list[str] = dataclasses.field(default_factory=list)
    hit_leader: bool = False
    failure: str | None = None

    def document(self, origin: int) -> dict[str, Any]:
        """Return the part of a report; times in seconds after `origin`."""
        return {
            "kind": self.fault.kind,
            "at_s": round((self.began - origin) / 1e9, 3),
            "until_s": round((self.ended - origin) / 1e9, 3),
            "targets": self.targets,
            "hit_leader": self.hit_leader,
            "parameters": self.fault.parameters,
            "weather": self.fault.weather,
            "failure": self.failure,
        }


def _who(draw: random.Random) -> dict[str, Any]:
    return {
        "who": draw.choices(["leader", "follower", "any"], [5, 3, 2])[0],
        "pick": draw.randrange(1 << 16),
    }


def _pause_length(draw: random.Random, longest: float) -> float:
    """Mostly around the election timeout, now and then long."""
    top = min(PAUSE_S_MAX, longest)
    return (
        draw.choices(
            [draw.uniform(0.05, 1.5), draw.uniform(1.5, 6), draw.uniform(6, 30)], [5, 3, 1]
        )[0]
        if top >= 30
        else draw.uniform(0.05, top)
    )


#: Kind: (weight, how to draw its parameters).
KINDS: dict[str, tuple[int, Callable[[random.Random], dict[str, Any]]]] = {
    "kill": (8, _who),
    "kill_all": (1, lambda draw: {}),
    "kill_majority": (2, _who),
    "pause": (6, _who),
    "pause_majority": (1, _who),
    "isolate": (5, _who),
    "isolate_one_way": (4, lambda draw: {**_who(draw), "way": draw.choice(["in", "out"])}),
    "cut_link_one_way": (3, _who),
    "bridge": (3, _who),
    "isolate_clients": (2, _who),
    "loss": (4, lambda draw: {"share": round(draw.uniform(0.02, 0.3), 3)}),
    "delay": (
        4,
        lambda draw: {"delay_ms": sorted(round(draw.expovariate(1 / 60), 1) for _ in "ab")},
    ),
    "uneven": (3, lambda draw: {"delay_ms": [0, round(draw.uniform(50, 900), 1)]}),
    "cut": (4, lambda draw: {"times": draw.randint(1, 8)}),
    "half_open": (3, lambda draw: {"side": draw.choice(["far", "near"]), **_who(draw)}),
    "lost_answers": (4, lambda draw: {"share": round(draw.uniform(0.005, 0.05), 4)}),
    "refuse": (1, _who),
    "clock": (3, lambda draw: {"seconds": draw.choice([-240, 5, 3600, 86_400]), **_who(draw)}),
    "restart": (3, _who),
    "rolling_restart": (1, lambda draw: {}),
    "transfer": (2, _who),
    "demote": (2, _who),
    "replace": (1, _who),
    "exchange": (2, _who),
    "kill_clients": (2, lambda draw: {"pick": draw.randrange(1 << 16)}),
}


#: Kinds that are weather themselves.
_NETWORK = ("loss", "delay", "uneven", "cut", "half_open", "lost_answers", "refuse")


def _weather(draw: random.Random) -> dict[str, Any]:
    """Bad links beside another fault."""
    return draw.choice(
        [
            {"delay_ms": [0, round(draw.uniform(5, 120), 1)]},
            {"lose_answers": round(draw.uniform(0.005, 0.03), 4)},
            {"delay_ms": [1, 30], "lose_answers": 0.01},
        ]
    )


def draw_faults(
    seed: int,
    duration_s: float,
    kinds: list[str] | None = None,
    longest_hold_s: float = PAUSE_S_MAX,
) -> list[Fault]:
    """Draw the faults of a run that fill `duration_s`, none holding longer than asked."""
    draw = random.Random(f"faults {seed}")
    names = kinds or list(KINDS)
    weights = [KINDS[name][0] for name in names]
    faults: list[Fault] = []
    used = 0.0
    while True:
        kind = draw.choices(names, weights)[0]
        hold = draw.uniform(0.3, min(8.0, longest_hold_s))
        if "pause" in kind:
            hold = _pause_length(draw, longest_hold_s)
        gap = draw.uniform(0.5, 4.0)
        used += gap + hold
        if used > duration_s:
            return faults
        parameters = KINDS[kind][1](draw)
        weather = _weather(draw) if kind not in _NETWORK and draw.random() < 0.3 else None
        faults.append(Fault(kind, round(gap, 2), round(hold, 2), parameters, weather))


class Nemesis(threading.Thread):
    """Applies drawn faults to a cluster until they or the time are used up."""

    def __init__(
        self,
        cluster: ChaosCluster,
        clients: list[str],
        faults: list[Fault],
        until: float,
        members: Members,
    ) -> None:
        super().__init__(name="nemesis")
        self.cluster = cluster
        self.members = members
        self.network = cluster.network
        self.clients = clients
        self.faults = faults
        self.until = until
        self.strikes: list[Strike] = []
        #: Kills one client process, starts another in its place, says which.
        self.replace_clients: Callable[[int], str] = lambda pick: ""
        self.say: Callable[[str], None] = lambda text: None
        self.stopped = threading.Event()
        self.unavailable: set[str] = set()

    def run(self) -> None:
        for fault in self.faults:
            if time.monotonic() + fault.gap_s + fault.hold_s > self.until:
                continue
            if self.stopped.wait(fault.gap_s):
                return
            self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        if fault.kind in self.unavailable:
            return
        leader = self._leader()
        strike = Strike(fault, time.monotonic_ns())
        self.strikes.append(strike)
        try:
            victims = self._victims(fault, leader)
            strike.targets = [node.node_id for node in victims]
            strike.hit_leader = leader in victims
            for source, target in self._links() if fault.weather else []:
                self.network.shape(source, target, **(fault.weather or {}))
            strike.began = time.monotonic_ns()
            self.say(
                f"{fault.kind} {strike.targets} {fault.parameters} for {fault.hold_s} s {fault.weather or ''}"
            )
            getattr(self, f"_{fault.kind}")(fault, victims)
        except Exception as error:
            strike.failure = f"{type(error).__name__}: {error}"
        finally:
            self._mend()
            strike.ended = time.monotonic_ns()

    def _leader(self) -> ChaosNode | None:
        found = self.cluster.leader()
        return found if isinstance(found, ChaosNode) else None

    def _victims(self, fault: Fault, leader: ChaosNode | None) -> list[ChaosNode]:
        """Return the victim first, and for kinds that take more than one also the next ones."""
        nodes = self.cluster.nodes
        if fault.kind == "kill_clients":
            return []
        who, pick = fault.parameters.get("who"), fault.parameters.get("pick", 0)
        if who is None:
            return list(nodes)
        if who == "leader" and leader is not None:
            victim = leader
        elif who == "follower" and leader is not None:
            followers = [node for node in nodes if node is not leader]
            victim = followers[pick % len(followers)]
        else:
            victim = nodes[pick % len(nodes)]
        if not fault.kind.endswith("majority"):
            return [victim]
        others = [node for node in nodes if node is not victim]
        return [victim, *others[: len(nodes) // 2]]

    def _hold(self, fault: Fault) -> None:
        self.stopped.wait(fault.hold_s)

    def _mend(self) -> None:
        self.network.heal()
        for node in self.cluster.nodes:
            node.resume()
            if not node.running():
                self.cluster.forget(node)
                node.start()

    # ---- processes

    def _kill(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for node in victims:
            node.kill()
        self._hold(fault)

    _kill_all = _kill
    _kill_majority = _kill

    def _pause(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for node in victims:
            node.pause()
        self._hold(fault)

    _pause_majority = _pause

    def _restart(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for node in victims:
            self.cluster.forget(node)
            code = node.stop(60)
            if code != 0:
                raise RuntimeError(f"{node.node_id} ended with {code} after SIGTERM")
            node.start()
            self._wait_served(node)

    _rolling_restart = _restart

    def _wait_served(self, node: ChaosNode) -> None:
        deadline = time.monotonic() + 60
        while self.cluster.status(node) is None:
            if time.monotonic() > deadline or not node.running():
                raise RuntimeError(f"{node.node_id} does not come back: {node.log_tail(3)}")
            time.sleep(0.05)

    def _transfer(self, fault: Fault, victims: list[ChaosNode]) -> None:
        session = self.cluster.session(victims[0])
        session.execute("FROM quack_query_by_name('cp', 'CALL quack_transfer_leadership()')")

    # ---- members

    def _demote(self, fault: Fault, victims: list[ChaosNode]) -> None:
        name = victims[0].node_id
        self.members.operations().demote(name)
        self._hold(fault)
        self.members.operations().promote(name)

    def _replace(self, fault: Fault, victims: list[ChaosNode]) -> None:
        """The victim loses its disk; an empty one takes its place."""
        self.members.replace(victims[0])

    def _exchange(self, fault: Fault, victims: list[ChaosNode]) -> None:
        """A new machine becomes a voter, and later the victim leaves for good."""
        self.members.add()
        self._hold(fault)
        self.members.remove(victims[0])

    def _clock(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for node in victims:
            node.step_clock(fault.parameters["seconds"])
        self._hold(fault)
        for node in victims:
            node.step_clock(0)

    def _kill_clients(self, fault: Fault, victims: list[ChaosNode]) -> None:
        """Clients vanish in the middle of what they do: it is rolled back, or was committed."""
        self.replace_clients(fault.parameters["pick"])

    # ---- network

    def _others(self, node: ChaosNode) -> list[str]:
        return [one.node_id for one in self.cluster.nodes if one is not node]

    def _isolate(self, fault: Fault, victims: list[ChaosNode]) -> None:
        """The victim sees no other node; clients still see it: it must not answer stale."""
        name = victims[0].node_id
        for other in self._others(victims[0]):
            self.network.block(name, other)
            self.network.block(other, name)
        self._hold(fault)

    def _isolate_one_way(self, fault: Fault, victims: list[ChaosNode]) -> None:
        name = victims[0].node_id
        for other in self._others(victims[0]):
            ends = (other, name) if fault.parameters["way"] == "in" else (name, other)
            self.network.block(*ends)
        self._hold(fault)

    def _cut_link_one_way(self, fault: Fault, victims: list[ChaosNode]) -> None:
        others = self._others(victims[0])
        self.network.block(victims[0].node_id, others[fault.parameters["pick"] % len(others)])
        self._hold(fault)

    def _bridge(self, fault: Fault, victims: list[ChaosNode]) -> None:
        """All nodes see the victim, which bridges them; the others do not see each other."""
        others = self._others(victims[0])
        for one in others:
            for other in others:
                if one != other:
                    self.network.block(one, other)
        self._hold(fault)

    def _isolate_clients(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for client in self.clients:
            self.network.block(client, victims[0].node_id)
            self.network.block(victims[0].node_id, client)
        self._hold(fault)

    def _links(self) -> list[tuple[str, str]]:
        """All pairs (who dials, who is dialled) on which faults may lie."""
        nodes = [node.node_id for node in self.cluster.nodes]
        return [(a, b) for a in [*nodes, *self.clients] for b in nodes if a != b]

    def _loss(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for source, target in self._links():
            self.network.lose(source, target, fault.parameters["share"])
        self._hold(fault)

    def _delay(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for source, target in self._links():
            self.network.shape(source, target, delay_ms=fault.parameters["delay_ms"])
        self._hold(fault)

    _uneven = _delay

    def _cut(self, fault: Fault, victims: list[ChaosNode]) -> None:
        times = fault.parameters["times"]
        for _ in range(times):
            for source, target in self._links():
                self.network.shape(source, target, cut=True)
            if self.stopped.wait(fault.hold_s / times):
                return

    def _half_open(self, fault: Fault, victims: list[ChaosNode]) -> None:
        name = victims[0].node_id
        for source, target in self._links():
            if name in (source, target):
                self.network.shape(source, target, half_open=fault.parameters["side"])
        self._hold(fault)

    def _lost_answers(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for source, target in self._links():
            self.network.shape(source, target, lose_answers=fault.parameters["share"])
        self._hold(fault)

    def _refuse(self, fault: Fault, victims: list[ChaosNode]) -> None:
        for source, target in self._links():
            if target == victims[0].node_id:
                self.network.shape(source, target, refuse=True)
        self._hold(fault)

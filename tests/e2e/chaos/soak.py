"""The main run: all workloads under drawn faults, then heal, converge, and judge."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any

import duckdb

from chaos.cluster import ChaosCluster
from chaos.history import Operation, Verdict, load
from chaos.members import Members
from chaos.nemesis import KINDS, Nemesis, draw_faults
from chaos.report import failovers_ms, operations
from chaos.stage import CLIENT_HOST, ClientProcess, draw_settings, stage
from chaos.workloads import WORKLOADS

#: Three nodes, and a machine without one for changes of members.
HOSTS = 4
#: How long the cluster may take to agree after everything is healed.
CONVERGE_S = 90.0


@dataclasses.dataclass
class Plan:
    """What to run."""

    seed: int
    minutes: float
    folder: pathlib.Path
    workloads: list[str]
    kinds: list[str] | None = None
    network: str = "auto"
    clients: int = 3
    think_ms: int = 40
    timeout_ms: int = 10_000


class _Clients:
    """The client processes of a run, those killed on the way included."""

    def __init__(self, plan: Plan, cluster: ChaosCluster) -> None:
        self.plan = plan
        self.cluster = cluster
        self.began = time.monotonic()
        self.running: dict[str, ClientProcess] = {}
        self.killed: list[ClientProcess] = []

    def start(self, workload: str) -> None:
        """Start a process of that workload; its values and clients are new ones."""
        generation = sum(one.workload == workload for one in self.killed)
        first = 100 * (1 + self.plan.workloads.index(workload))
        self.running[workload] = ClientProcess(
            self.cluster,
            self.plan.folder,
            workload,
            seed=self.plan.seed,
            clients=self.plan.clients,
            think_ms=self.plan.think_ms,
            timeout_ms=self.plan.timeout_ms,
            first_number=first + generation % (100 // self.plan.clients) * self.plan.clients,
            name=f"{workload}.{generation}" if generation else workload,
            began=self.began,
        )

    def replace(self, pick: int) -> str:
        """Kill the process of one workload, and start another."""
        workload = self.plan.workloads[pick % len(self.plan.workloads)]
        victim = self.running.pop(workload)
        victim.end()
        self.killed.append(victim)
        self.start(workload)
        return workload

    def finish(self) -> dict[str, dict[str, Any]]:
        """Let all finish what they do; return their reports."""
        for one in self.running.values():
            one.ask_to_stop()
        return {name: one.finish() for name, one in self.running.items()}

    def end(self) -> None:
        """Take all down."""
        for one in self.running.values():
            one.end()

    def histories(self) -> dict[str, list[Operation]]:
        """Return the operations by workload."""
        found: dict[str, list[Operation]] = {name: [] for name in self.plan.workloads}
        for one in [*self.killed, *self.running.values()]:
            found[one.workload] += load(one.history)
        return found


def run(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the plan; returns the report with its verdict in `ok`."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    settings = draw_settings(plan.seed)
    with stage(plan.folder, plan.seed, plan.network, settings, HOSTS) as cluster:
        return {**_run(plan, cluster, say), "settings": settings}


def _run(plan: Plan, cluster: ChaosCluster, say: Callable[[str], None]) -> dict[str, Any]:
    false_clock = min([node.use_false_clock() for node in cluster.nodes])
    cluster.start()
    session = cluster.session(cluster.nodes[0])
    for name in plan.workloads:
        WORKLOADS[name].create(session)
    began_ns = time.monotonic_ns()
    clients = _Clients(plan, cluster)
    try:
        for name in plan.workloads:
            clients.start(name)
        longest = min(30.0, plan.minutes * 60 / 8)
        faults = draw_faults(plan.seed, plan.minutes * 60, plan.kinds, longest)
        nemesis = Nemesis(
            cluster,
            [CLIENT_HOST],
            faults,
            time.monotonic() + plan.minutes * 60,
            Members(cluster, plan.seed),
        )
        nemesis.say = lambda text: say(f"{time.monotonic() - clients.began:7.1f} s  {text}")
        nemesis.unavailable = set() if false_clock else {"clock"}
        nemesis.replace_clients = clients.replace
        nemesis.start()
        nemesis.join(plan.minutes * 60 + 300)
        nemesis.stopped.set()
        nemesis.join()
        nemesis.say("healed; the clients finish")
        ends = clients.finish()
    finally:
        clients.end()
    histories = clients.histories()
    converged, rows, hashes, states = _converge(plan, cluster, say)
    verdicts = _judge(plan, histories, states, say)
    return _report(
        plan, cluster, began_ns, nemesis, histories, ends, converged, rows, hashes, verdicts
    )


def _converge(
    plan: Plan, cluster: ChaosCluster, say: Callable[[str], None]
) -> tuple[str | None, list[dict[str, object]], dict[str, list[Any]], dict[str, dict[str, Any]]]:
    """Wait for a common state; return what went wrong, statuses, hashes and end states."""
    try:
        cluster.start_all()
        rows = cluster.wait_equal(CONVERGE_S)
    except TimeoutError as error:
        return str(error), [row for n in cluster.nodes if (row := cluster.status(n))], {}, {}
    hashes: dict[str, list[Any]] = {}
    states: dict[str, dict[str, Any]] = {name: {} for name in plan.workloads}
    for node in cluster.nodes:
        try:
            session = cluster.session(node, "linearizable")
            session.execute("SET quack_request_timeout_ms = 60000")
            hashes[node.node_id] = session.execute(
                "SELECT * FROM quack_state_hash('cp') ORDER BY ALL"
            ).fetchall()
            for name in plan.workloads:
                states[name][node.node_id] = WORKLOADS[name].end_state(session)
        except duckdb.Error as error:
            return f"{node.node_id} cannot be read: {error}", rows, hashes, states
    say(f"converged at {rows[0]['applied_index']}")
    return None, rows, hashes, states


def _judge(
    plan: Plan,
    histories: dict[str, list[Operation]],
    states: dict[str, dict[str, Any]],
    say: Callable[[str], None],
) -> list[Verdict]:
    verdicts = []
    for name in plan.workloads:
        verdict = WORKLOADS[name].check(histories[name], states.get(name, {}))
        verdicts.append(verdict)
        say(f"{name}: {'ok' if verdict.ok else 'ANOMALIES'} {verdict.figures}")
    return verdicts


def _report(
    plan: Plan,
    cluster: ChaosCluster,
    began_ns: int,
    nemesis: Nemesis,
    histories: dict[str, list[Operation]],
    ends: dict[str, dict[str, Any]],
    converged: str | None,
    rows: list[dict[str, object]],
    hashes: dict[str, list[Any]],
    verdicts: list[Verdict],
) -> dict[str, Any]:
    everything = [op for history in histories.values() for op in history]
    hash_equal = len(hashes) == len(cluster.nodes) and len({str(h) for h in hashes.values()}) == 1
    problems = [f"not converged: {converged}"] if converged else []
    if not hash_equal and not converged:
        problems.append(f"state hashes differ: {hashes}")
    problems += [f"{v.name}: {text}" for v in verdicts for text in v.anomalies]
    problems += [f"fault {s.fault.kind}: {s.failure}" for s in nemesis.strikes if s.failure]
    for name, end in ends.items():
        problems += [f"{name}: client stuck: {who}" for who in end["stuck"]]
        problems += [f"{name}: {text}" for text in end["failures"]]
    for name, history in histories.items():
        if not any(op.outcome == "ok" for op in history):
            problems.append(f"{name}: not one operation succeeded")
    document = {
        "ok": not problems,
        "seed": plan.seed,
        "minutes": plan.minutes,
        "network": cluster.network.kind,
        "nodes": len(cluster.nodes),
        "faults": len(nemesis.strikes),
        "hash_equal": hash_equal,
        "problems": problems,
        "operations": {name: operations(history) for name, history in histories.items()},
        "failovers_ms": failovers_ms(nemesis.strikes, everything),
        "verdicts": {verdict.name: verdict.document() for verdict in verdicts},
        "clients": ends,
        "fault_log": [strike.document(began_ns) for strike in nemesis.strikes],
        "kinds": sorted({strike.fault.kind for strike in nemesis.strikes}),
        "kinds_known": len(KINDS),
        "statuses": [{key: str(value) for key, value in row.items()} for row in rows],
    }
    if problems:
        document["logs"] = {node.node_id: node.log_tail(40) for node in cluster.nodes}
    return document

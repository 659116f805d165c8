"""Three ways to lose a process, each followed by a plain start and a look at the data.

- `OneNode`: a node alone ends after a drawn number of changes of its files: in its start, in a
  write, a checkpoint, a truncation, its clean stop, in the making of its first files.
- `Install`: a node of three that needs an image ends in the middle of getting and installing it.
- `Kills`: a whole loaded cluster of three is killed at a drawn moment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import random
import shutil
import time
from collections.abc import Callable, Iterator

import duckdb

from crash.disk import Cut, CutDisk
from crash.work import Worker, check, create, open_session
from quack.cluster.local import LocalCluster, LocalNode
from quack.errors import ClusterError

#: Everything that changes files happens often.
SETTINGS: dict[str, object] = {
    "checkpoint_idle_ms": 100,
    "checkpoint_log_bytes": 64 * 1024,
    "log_segment_bytes": 64 * 1024,
    "log_tail_bytes": 0,
    "transaction_split_bytes": 16 * 1024,
    "transaction_patience_ms": 300,
}
ALONE = {**SETTINGS, "election_timeout_ms": 150, "heartbeat_interval_ms": 30}
#: Changes a node makes at most in one loop, its clean stop included. A loop whose process made
#: fewer lowers the bound of the next ones.
CHANGES_ALONE = 160
CHANGES_INSTALL = 40
CHANGES_FIRST_START = 45
STEPS = 15
FRESH_EVERY = 10
TIMEOUT_S = 60.0


@dataclasses.dataclass
class Figures:
    """What was tried and what came of it."""

    points: int = 0  #: processes ended at a drawn change
    not_reached: int = 0  #: the node ended by itself before its point
    kills: int = 0  #: whole clusters killed
    recoveries: int = 0  #: starts that came up by themselves
    refusals: int = 0  #: starts that did not
    quarantines: int = 0  #: starts that moved damaged files aside; there is no cause
    acknowledged: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems and self.refusals == 0 and self.recoveries > 0


def _wait(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _data(node: LocalNode) -> pathlib.Path:
    return node.log_file.parent / "data"


def _quarantines(node: LocalNode) -> int:
    folder = _data(node) / "quarantine"
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def state_hash(cluster: LocalCluster, node: LocalNode) -> tuple | None:
    """One node's state; None while it does not answer."""
    try:
        session = cluster.connect(node)
    except duckdb.Error:
        return None
    try:
        return tuple(
            session.execute("SELECT * FROM quack_state_hash('cp') ORDER BY ALL").fetchall()
        )
    except duckdb.Error:
        return None
    finally:
        session.close()


class _Run:
    """A cluster in a folder of its own, and the steps its clients made."""

    changes_max = 0

    def __init__(
        self, folder: pathlib.Path, nodes: int, settings: dict[str, object], figures: Figures
    ) -> None:
        self.cluster = LocalCluster.create(folder, nodes, settings=settings)
        self.figures = figures
        self.acknowledged: list[int] = []
        self.unknown: list[int] = []
        self.next_step = 1

    def close(self) -> None:
        for node in self.cluster.nodes:
            node.kill()
        shutil.rmtree(self.cluster.folder)

    @contextlib.contextmanager
    def working(self, count: int = STEPS) -> Iterator[Worker]:
        worker = Worker(self.cluster, self.next_step, count)
        self.next_step += count
        try:
            with worker:
                yield worker
        finally:
            self.acknowledged += worker.acknowledged
            self.unknown += worker.unknown
            self.figures.acknowledged += len(worker.acknowledged)

    def reached(self, cut: Cut, count: int) -> None:
        """Note whether the process came to its point."""
        if count >= cut.after:
            self.figures.points += 1
        else:
            self.figures.not_reached += 1
            self.changes_max = max(count, 1)

    def problem(self, where: str, words: str) -> None:
        tails = "\n".join(f"{n.node_id}: {n.log_tail(6)}" for n in self.cluster.nodes)
        self.figures.problems.append(f"{where}: {words}\n{tails}")

    def start_all(self, where: str) -> bool:
        """Every node starts by itself, and one leads."""
        for node in self.cluster.nodes:
            node.start()
        try:
            self.cluster.wait_leader(TIMEOUT_S)
        except ClusterError as error:
            self.figures.refusals += 1
            self.problem(where, str(error).splitlines()[0])
            return False
        self.figures.recoveries += 1
        return True

    def check(self, where: str) -> bool:
        """All nodes hold the same, which is every acknowledged step whole and nothing else."""
        seen: set[tuple | None] = set()

        def is_equal() -> bool:
            seen.clear()
            seen.update(state_hash(self.cluster, node) for node in self.cluster.nodes)
            return len(seen) == 1 and None not in seen

        if not _wait(is_equal):
            self.problem(where, f"states differ: {seen}")
            return False
        try:
            session = open_session(self.cluster)
            found = check(session, self.acknowledged, self.unknown)
            present = session.execute("SELECT step FROM cp.u").fetchall()
            session.close()
        except duckdb.Error as error:
            found, present = [str(error)], []
        # What was unknown is known now, and stays.
        self.acknowledged = [step for (step,) in present]
        self.unknown = []
        if found:
            self.problem(where, "; ".join(found))
        return not found


class OneNode(_Run):
    """See above."""

    def __init__(
        self, folder: pathlib.Path, library: pathlib.Path, figures: Figures, draw: random.Random
    ) -> None:
        super().__init__(folder, 1, ALONE, figures)
        (self.node,) = self.cluster.nodes
        self._disk = CutDisk(library, self.node)
        self._draw = draw
        self._first = True
        self.changes_max = CHANGES_FIRST_START

    def loop(self) -> bool:
        cut = Cut(
            self._draw.randint(1, self.changes_max),
            self._draw.choice(("kill", "power", "power")),
            self._draw.getrandbits(32),
        )
        where = f"one node, {cut}"
        before = _quarantines(self.node)
        self._disk.arm(cut)
        self.node.start()
        with self._worked():
            _wait(lambda: not self.node.running() or self._is_idle())
            self.node.stop()
            self.reached(cut, self._disk.count())
            self._disk.disarm()
            # The client of the last step is still there, and asks again.
            started = self.start_all(where)
        moved = _quarantines(self.node) - before
        self.figures.quarantines += moved
        if moved:
            self.problem(where, "damaged files")
        if not started:
            return False
        if self._first:
            self._first = False
            self.changes_max = CHANGES_ALONE
            create(self.cluster)
        good = self.check(where)
        self.node.stop()
        return good

    @contextlib.contextmanager
    def _worked(self) -> Iterator[None]:
        if self._first:
            self._is_idle = lambda: self.cluster.leader() is not None
            yield
            return
        with self.working() as worker:
            self._is_idle = lambda: worker.done
            yield
            worker.stop()


class Three(_Run):
    """A cluster of three with its tables, running."""

    def __init__(self, folder: pathlib.Path, figures: Figures, draw: random.Random) -> None:
        super().__init__(folder, 3, dict(SETTINGS), figures)
        self._draw = draw
        self.cluster.start()
        create(self.cluster)


class Install(Three):
    """See above."""

    def __init__(
        self, folder: pathlib.Path, library: pathlib.Path, figures: Figures, draw: random.Random
    ) -> None:
        super().__init__(folder, figures, draw)
        self.victim = self.cluster.nodes[2]
        self.changes_max = CHANGES_INSTALL
        self._disk = CutDisk(library, self.victim)

    def loop(self) -> bool:
        cut = Cut(
            self._draw.randint(1, self.changes_max),
            self._draw.choice(("kill", "power")),
            self._draw.getrandbits(32),
        )
        where = f"install, {cut}"
        self.victim.kill()
        with self.working() as worker:
            _wait(lambda: worker.done)
        if self._draw.random() < 0.5:
            (_data(self.victim) / "catalog" / "cp.duckdb").unlink(missing_ok=True)
            where += ", without its state"
        before = _quarantines(self.victim)
        self._disk.arm(cut)
        self.victim.start()
        with self.working(5) as worker:
            _wait(
                lambda: (
                    not self.victim.running()
                    or (worker.done and state_hash(self.cluster, self.victim) is not None)
                )
            )
        self.reached(cut, self._disk.count())
        self.victim.kill()
        self._disk.disarm()
        if not self.start_all(where):
            return False
        self.figures.quarantines += _quarantines(self.victim) - before
        return self.check(where)


class Kills(Three):
    """See above."""

    def loop(self) -> bool:
        pause = self._draw.uniform(0.0, 1.5)
        count = self._draw.randint(1, 3)
        victims = self._draw.sample(self.cluster.nodes, count)
        where = f"kill {[node.node_id for node in victims]} after {pause:.2f} s"
        with self.working() as worker:
            time.sleep(pause)
            for node in victims:
                node.kill()
            self.figures.kills += 1
            started = self.start_all(where)
            _wait(lambda: worker.done)
        return started and self.check(where)


def run(
    folder: pathlib.Path,
    library: pathlib.Path,
    loops: int,
    seed: int,
    say: Callable[[str], None],
) -> Figures:
    """Half of the loops are `OneNode`, a quarter each `Install` and `Kills`; stops at a problem."""
    draw = random.Random(seed)
    figures = Figures()
    kinds = ["one", "install", "one", "kills"] * (loops // 4 + 1)
    plan = sorted(kinds[:loops], key=["one", "install", "kills"].index)
    current: tuple[str, OneNode | Install | Kills] | None = None
    for number, kind in enumerate(plan):
        is_stale = kind == "one" and number % FRESH_EVERY == 0
        if current is None or current[0] != kind or is_stale:
            if current is not None:
                current[1].close()
            place = folder / f"{number:04}-{kind}"
            if kind == "one":
                current = (kind, OneNode(place, library, figures, draw))
            elif kind == "install":
                current = (kind, Install(place, library, figures, draw))
            else:
                current = (kind, Kills(place, figures, draw))
        good = current[1].loop()
        say(f"{number + 1}/{loops} {kind}: {'good' if good else figures.problems[-1]}")
        if not good:
            break
    if current is not None and figures.ok:
        current[1].close()
    elif current is not None:
        for node in current[1].cluster.nodes:
            node.kill()
    return figures

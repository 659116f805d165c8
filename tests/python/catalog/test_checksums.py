"""Goal: replicas compare what they hold at one place of the log, and only a wrong one latches.

Marks are put into the log by hand; the reports of the replicas are their own.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from catalog_replica import Replica

FIVE = ["n0", "n1", "n2", "n3", "n4"]


def wait_until(condition: Callable[[], Any], timeout_s: float = 60) -> Any:
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


class Group:
    """Replicas over one log that know each other as voters."""

    def __init__(self, folder: Path, names: list[str], **options: Any) -> None:
        self.folder, self.names, self.options = folder, names, options
        self.log = uuid.uuid4().hex
        self.replicas = {name: self.open(name) for name in names}

    def open(self, name: str) -> Replica:
        return Replica(
            self.folder / f"{name}.db",
            self.log,
            name,
            voters=",".join(self.names),
            leads=name == self.names[0],
            **self.options,
        )

    def __getitem__(self, name: str) -> Replica:
        return self.replicas[name]

    def falsify(self, name: str) -> None:
        """Flip one stored value of a replica, behind its back."""
        self.replicas.pop(name).close()
        plain = duckdb.connect(str(self.folder / f"{name}.db"))
        plain.execute("UPDATE t SET i = 4711 WHERE i = 7")
        plain.close()
        self.replicas[name] = self.open(name)

    def verdicts(self, name: str, index: int, table: str = "t") -> dict[str, str]:
        """What a replica says about a table in the round at an index, by node."""
        rows = (line.split("|") for line in self[name].command("checksums").splitlines())
        return {
            node: verdict
            for mark, node, table_name, _, verdict, _ in rows
            if mark == str(index) and table_name in (table, "")
        }

    def wait_verdicts(self, name: str, index: int, expected: dict[str, str]) -> None:
        wait_until(lambda: self.verdicts(name, index) == expected)

    def prove(self, name: str) -> None:
        """Mark until a round has equal values of all: a replica that needs rest sits some out."""

        def is_proven() -> bool:
            index = int(self[name].command("mark"))
            wait_until(lambda: len(self.verdicts(name, index)) == len(self.names))
            return self.verdicts(name, index) == dict.fromkeys(self.names, "equal")

        wait_until(is_proven)

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, FIVE)
    made["n0"].con.execute("CREATE TABLE t (i INTEGER)")
    made["n0"].con.execute("INSERT INTO t SELECT range FROM range(10)")
    for replica in made.replicas.values():
        replica.command("wait")
    yield made
    made.close()


def test_every_replica_reports_the_state_at_the_mark(group: Group) -> None:
    for batch in range(20):
        group[FIVE[batch % 5]].con.execute("INSERT INTO t VALUES (?)", [100 + batch])
    index = int(group["n1"].command("mark"))
    for batch in range(20):  # what comes after the mark is not in it, however the replicas batch
        group[FIVE[batch % 5]].con.execute("INSERT INTO t VALUES (?)", [200 + batch])
    for name in FIVE:
        group.wait_verdicts(name, index, dict.fromkeys(FIVE, "equal"))


def test_a_replica_that_comes_late_reports_the_state_at_the_mark(group: Group) -> None:
    group["n4"].command("pause")
    index = int(group["n0"].command("mark"))
    group["n0"].con.execute("INSERT INTO t VALUES (500)")
    group.wait_verdicts("n0", index, dict.fromkeys(FIVE[:4], "equal"))
    group["n4"].command("resume")
    for name in FIVE:
        group.wait_verdicts(name, index, dict.fromkeys(FIVE, "equal"))


@pytest.mark.parametrize("is_replaced", [False, True], ids=["as_it_is", "replaced_by_an_image"])
def test_the_odd_one_latches_unless_its_data_was_replaced(
    group: Group, tmp_path: Path, is_replaced: bool
) -> None:
    """A report is about the data that was hashed: an image that came since is not wrong."""
    group.falsify("n2")
    others = [name for name in FIVE if name != "n2"]
    for name in others:
        group[name].command("pause")
    index = int(group["n2"].command("mark"))
    wait_until(lambda: group.verdicts("n2", index) == {"n2": "pending"})
    group["n2"].command("pause")
    group["n0"].command("resume")
    group.wait_verdicts("n0", index, {"n0": "differs", "n2": "differs"})
    if is_replaced:
        group["n0"].command("checkpoint")
        group["n0"].command("snapshot", str(tmp_path / "image"))
        group["n2"].command("install", str(tmp_path / "image"))
    for name in others:
        group[name].command("resume")
    expected = dict.fromkeys(others, "equal") | {"n2": "odd"}
    group.wait_verdicts("n1", index, expected)
    group["n2"].command("resume")
    if is_replaced:
        group["n2"].command("wait")
        group.prove("n2")
        assert group["n2"].command("degraded") == ""
        assert group["n2"].hashes() == group["n0"].hashes()
    else:
        reason = wait_until(lambda: group["n2"].command("degraded"))
        for part in ("'n2'", 'table "main.t"', f"index {index}", "majority"):
            assert part in reason
    for name in others:
        assert group[name].command("degraded") == ""


def test_an_own_report_of_an_earlier_life_does_not_latch(group: Group, tmp_path: Path) -> None:
    """A replica whose data was put right replays what it said when it was wrong."""
    group.replicas.pop("n2").close()
    shutil.copy(tmp_path / "n2.db", tmp_path / "right.db")
    group.replicas["n2"] = group.open("n2")
    group.falsify("n2")
    index = int(group["n0"].command("mark"))
    group.wait_verdicts("n0", index, dict.fromkeys(FIVE, "equal") | {"n2": "odd"})
    wait_until(lambda: group["n2"].command("degraded"))
    group.replicas.pop("n2").close()
    shutil.copy(tmp_path / "right.db", tmp_path / "n2.db")
    group.replicas["n2"] = group.open("n2")
    # It says again what it holds at the mark, and this time that is right.
    group.wait_verdicts("n2", index, dict.fromkeys(FIVE, "equal"))
    assert group["n2"].command("degraded") == ""
    assert group["n2"].hashes() == group["n0"].hashes()


def test_the_leader_marks_and_rounds_keep_to_their_share_of_time(tmp_path: Path) -> None:
    """Marks every 10 ms; rounds that cost more than 0.1 ms come less often."""
    group = Group(tmp_path, ["n0", "n1"], checksum_ms=10)
    try:
        group["n0"].con.execute("CREATE TABLE t AS SELECT range AS i FROM range(200000)")

        def rounds() -> set[int]:
            return {
                int(line.split("|")[0]) for line in group["n1"].command("checksums").splitlines()
            }

        wait_until(rounds)
        seen: set[int] = set()
        started = time.monotonic()
        while time.monotonic() - started < 3:
            seen |= rounds()
            time.sleep(0.02)
        # One hash of 200,000 rows takes milliseconds at least, so that rounds are tenths of a second apart; without
        # the rule 300 would have come.
        assert 1 <= len(seen) <= 60
    finally:
        group.close()


def test_a_mark_has_a_format_version_of_its_own(tmp_path: Path) -> None:
    """Nodes that do not know marks refuse the entry by its version; they read all others."""
    file = tmp_path / "log"
    replica = Replica(tmp_path / "n0.db", uuid.uuid4().hex, "n0", log_file=str(file), voters="n0")
    replica.con.execute("CREATE TABLE t AS SELECT 1 AS i")
    index = int(replica.command("mark"))
    wait_until(lambda: "equal" in replica.command("checksums"))
    replica.con.execute("INSERT INTO t VALUES (2)")
    replica.close()
    versions = []
    content = file.read_bytes()
    while content:
        length = int.from_bytes(content[8:16], "little")
        versions.append(int.from_bytes(content[24:26], "little"))
        content = content[24 + length :]
    assert versions == [1, 2, 2, 1]
    assert versions[index - 1] == 2


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (
            "0700" + "00" * 80,
            "format version 7, this node understands versions 1 to 6; upgrade the node",
        ),
        ("0000" + "00" * 80, "format version 0"),
        ("01", "log entry"),
    ],
    ids=["newer", "none", "cut"],
)
def test_an_entry_that_cannot_be_read_latches(group: Group, payload: str, reason: str) -> None:
    """No replica skips it, and nothing after it is applied."""
    before = int(group["n0"].command("applied"))
    group["n0"].command("append", payload)
    for name in FIVE:
        found = wait_until(lambda name=name: group[name].command("degraded"))
        assert reason in found, found
        assert int(group[name].command("applied")) == before
        with pytest.raises(duckdb.Error):
            group[name].con.execute("INSERT INTO t VALUES (1)")

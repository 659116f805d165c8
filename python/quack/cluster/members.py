"""Changes of members, carried through to their end: learners first, one step at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from quack.cluster.target import NodeSession, Target
from quack.errors import ClusterError, code_of

__all__ = ["MemberOperations", "describe_transfer"]

#: Codes of refusals that time or another node may cure.
_CURABLE = {"unavailable", "conflict", "overloaded", "deadline_exceeded", "outcome_unknown"}
#: Roles in `quack_members()` of nodes that take part.
_MEMBER_ROLES = {"voter", "learner"}
_PAUSE_S = 0.25
#: Seconds for a look at one node.
_LOOK_S = 5.0

Progress = Callable[[str], None]


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]


def describe_transfer(row: dict[str, Any]) -> str:
    """Say one row of ``quack_snapshot_transfers()`` in words."""
    peer = f"node '{row['peer']}'" if row["peer"] else "a backup"
    sends = row["direction"] == "send"
    words = f"{'sends a snapshot to' if sends else 'gets a snapshot from'} {peer}: {row['state']}"
    total = int(row["bytes_total"])
    if total:
        done = int(row["bytes_done"])
        words += f", {done / 1e6:.1f} of {total / 1e6:.1f} MB ({100 * done // total} %)"
    if row["bytes_per_second"]:
        words += f", {row['bytes_per_second'] / 1e6:.1f} MB/s"
    if row["seconds_left"] is not None and row["state"] in ("sending", "receiving"):
        words += f", {row['seconds_left']} s left"
    if row["resumed"]:
        words += f", resumed {row['resumed']} times"
    return words


class MemberOperations:
    """Member commands against a cluster, with progress and one deadline for all steps.

    Args:
        target: any nodes of the cluster; the leader is found from there.
        timeout_s: for the whole operation.
        progress: gets one line whenever something changes.

    """

    def __init__(self, target: Target, timeout_s: float, progress: Progress) -> None:
        self._target = target
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._progress = progress
        self._last = ""

    def _members_at(self, target: Target) -> list[dict[str, Any]]:
        with target.open(timeout_s=_LOOK_S) as session:
            return session.rows("quack_members")

    def _look(self) -> tuple[Target, list[dict[str, Any]]]:
        """Find the leader, or else a member; returns it with its view.

        Raises:
            ClusterError: no host answers as a member; with what each said.

        """
        words: list[str] = []
        fallback: tuple[Target, list[dict[str, Any]]] | None = None
        asked: set[str] = set()
        hosts = [target.hosts for target in self._target.each()]
        while hosts:
            host = hosts.pop(0)
            if host in asked:
                continue
            asked.add(host)
            target = self._target.at(host)
            try:
                rows = self._members_at(target)
            except ClusterError as error:
                words.append(f"{host}: {_first_line(error)}")
                continue
            # Its own view has lags only on the leader itself.
            if any(row["is_leader"] and row["lag"] is not None for row in rows):
                return target, rows
            hosts[:0] = [str(row["address"]) for row in rows if row["is_leader"]]
            if any(row["role"] == "voter" for row in rows):
                fallback = fallback or (target, rows)
            else:
                words.append(f"{host}: is no member of a formed cluster")
        if fallback is None:
            raise ClusterError(f"{'; '.join(words) or 'no node answers'} [quack:unavailable]")
        return fallback

    def members(self) -> list[dict[str, Any]]:
        """Return the rows of ``quack_members()``, from the leader when there is one: it knows lags.

        Raises:
            ClusterError: no member answers.

        """
        return self._look()[1]

    def status(self) -> list[dict[str, Any]]:
        """Ask every member, and every node that waits to be let in, how it is.

        Returns:
            One dictionary per node: ``node_id``, ``address``, ``membership`` (its role as the
            leader sees it), ``answers``, ``error``, ``status`` (its row of
            ``quack_raft_status()``, or None) and ``transfers`` (its rows of
            ``quack_snapshot_transfers()``).

        Raises:
            ClusterError: no member answers.

        """
        nodes: list[dict[str, Any]] = []
        for row in self.members():
            if row["role"] == "removed":
                continue
            node: dict[str, Any] = {
                "node_id": row["node_id"],
                "address": row["address"],
                "membership": row["role"],
                "answers": False,
                "error": "",
                "status": None,
                "transfers": [],
            }
            try:
                with self._target.at(str(row["address"])).open(timeout_s=_LOOK_S) as session:
                    own = session.rows("quack_raft_status")[0]
                    if own["node_id"] != row["node_id"]:
                        # The client was led on by a node that is not the one asked for.
                        raise ClusterError("does not answer [quack:unavailable]")
                    node["status"] = own
                    node["transfers"] = session.rows("quack_snapshot_transfers")
                    node["answers"] = True
            except ClusterError as error:
                node["error"] = _first_line(error)
            nodes.append(node)
        return nodes

    def call(self, function: str, node_id: str, *, wait_for_node: bool = False) -> str:
        """Call a member function until it succeeds, meets an obstacle that stays, or time is up.

        Args:
            function: name of the SQL function.
            node_id: its argument.
            wait_for_node: also wait for the node to ask to join.

        Raises:
            ClusterError: with the last refusal.

        """
        doors: list[str] = []
        while True:
            try:
                target, rows = self._look()
                if doors:
                    target = self._target.at(doors.pop())
                with target.open() as session:
                    words = str(session.rows(function, node_id)[0]["result"])
                self._say(words)
                return words
            except ClusterError as error:
                code = code_of(error)
                waits = wait_for_node and code == "not_found"
                if code not in _CURABLE and not waits:
                    raise
                self._say(_first_line(error))
                if waits and not doors:
                    # It may know only members that do not lead; those pass along what they heard.
                    doors = [str(row["address"]) for row in rows if row["role"] in _MEMBER_ROLES]
                self._pause(error)

    def wait_caught_up(self, node_id: str) -> None:
        """Wait until the leader sees the newest member of that name follow closely.

        Raises:
            ClusterError: time is up; says how far it got.

        """
        while True:
            words = f"node '{node_id}' is not a learner yet"
            try:
                rows = [row for row in self.members() if row["node_id"] == node_id]
            except ClusterError as error:
                rows, words = [], _first_line(error)
            for row in rows:
                if row["role"] != "learner":
                    continue
                lag = row["lag"]
                if row["match_index"] and lag is not None and lag <= 500:
                    return
                words = f"node '{node_id}' catches up: "
                words += f"{lag} entries behind" if lag is not None else "asking the leader"
                if row["state"] == "snapshot":
                    words += ", receives a snapshot"
                if row["last_error"]:
                    words += f"; {row['last_error']}"
            self._say(words)
            self._pause(ClusterError(words))

    def add(self, node_id: str, *, voter: bool = True) -> str:
        """Let a waiting node in as a learner and, unless told otherwise, make it a voter."""
        words = self.call("quack_member_add", node_id, wait_for_node=True)
        if not voter or ("already" in words and "voter" in words):
            return words
        self.wait_caught_up(node_id)
        return self.promote(node_id)

    def promote(self, node_id: str) -> str:
        """Make a learner a voter as soon as it has caught up."""
        return self.call("quack_member_promote", node_id)

    def demote(self, node_id: str) -> str:
        """Make a voter a learner."""
        return self.call("quack_member_demote", node_id)

    def remove(self, node_id: str) -> str:
        """Remove a member; a leader hands over first."""
        return self.call("quack_member_remove", node_id)

    def replace(self, node_id: str) -> str:
        """Put the node that comes with an empty disk in the place of the one of that name."""
        words = self.call("quack_member_replace", node_id, wait_for_node=True)
        if "ask again" not in words:
            return words
        self.wait_caught_up(node_id)
        return self.call("quack_member_replace", node_id)

    def reseed(self, node_id: str) -> str:
        """Have a node move its catalog aside, restart, and get the data again.

        The other voters alone must hold a majority, be in service and have applied what was
        committed when the command began: while the node has no data, the cluster needs nothing of
        it.

        Raises:
            ClusterError: the others do not, or the node leads, or it refuses, or time is up.

        """
        leader, rows = self._look()
        members = {
            str(row["node_id"]): str(row["address"]) for row in rows if row["role"] in _MEMBER_ROLES
        }
        if node_id not in members:
            raise ClusterError(f"node '{node_id}' is no member of this cluster [quack:not_found]")
        leaders = {str(row["node_id"]) for row in rows if row["is_leader"]}
        if leaders <= {node_id}:
            words = f"node '{node_id}' leads" if leaders else "no node leads"
            fix = "cluster leader stepdown" if leaders else "cluster status"
            raise ClusterError(
                f"{words}, and the data has to come from another leader; nothing was changed. "
                f"First run: quack {fix} [quack:unavailable]"
            )
        with leader.open(timeout_s=_LOOK_S) as session:
            goal = int(session.rows("quack_raft_status")[0]["commit_index"])
        voters = [str(row["node_id"]) for row in rows if row["role"] == "voter"]
        self._await_majority_without(node_id, {name: members[name] for name in voters}, goal)
        node = self._target.at(members[node_id])
        with node.open(timeout_s=_LOOK_S) as session:
            self._say(str(session.rows("quack_reseed", node_id)[0]["result"]))
        while True:
            words = self._reseed_obstacle(node, node_id, goal)
            if not words:
                return f"node '{node_id}' has the data again, up to index {goal}"
            self._say(words)
            self._pause(ClusterError(words))

    def _await_majority_without(self, node_id: str, voters: dict[str, str], goal: int) -> None:
        """Wait for voters that are behind; refuse when those that never come are needed."""
        needed = len(voters) // 2 + 1
        while True:
            ready: list[str] = []
            behind: list[str] = []
            out: list[str] = []
            for name, address in voters.items():
                if name == node_id:
                    continue
                fault, is_passing = self._fault_of(name, address, goal)
                (behind if is_passing else out if fault else ready).append(fault or name)
            if len(ready) >= needed:
                return
            words = (
                f"node '{node_id}' is not reseeded: without it {needed} of the {len(voters)} "
                f"voters are needed, and {len(ready)} of them are in service and caught up"
            )
            if behind or out:
                words += f" ({'; '.join(behind + out)})"
            words += "; nothing was changed [quack:unavailable]"
            if len(ready) + len(behind) < needed:
                raise ClusterError(words)
            self._say(words)
            self._pause(ClusterError(words))

    def _fault_of(self, node_id: str, address: str, goal: int) -> tuple[str, bool]:
        """Why a voter cannot be counted on, and whether time alone cures that; empty = nothing."""
        try:
            with self._target.at(address).open(timeout_s=_LOOK_S) as session:
                row = session.rows("quack_raft_status")[0]
        except ClusterError as error:
            return f"{node_id}: {_first_line(error)}", False
        if row["node_id"] != node_id:
            return f"{node_id}: does not answer", False
        if row["degraded"]:
            return f"{node_id}: out of service: {row['reason']}", False
        applied = int(row["applied_index"] or 0)
        if applied < goal:
            return f"{node_id}: has applied {applied} of {goal}", True
        return "", False

    def _reseed_obstacle(self, node: Target, node_id: str, goal: int) -> str:
        """What there is still to wait for; empty = nothing."""
        try:
            with node.open(timeout_s=_LOOK_S) as session:
                row = session.rows("quack_raft_status")[0]
                transfers = session.rows("quack_snapshot_transfers")
        except ClusterError:
            return f"node '{node_id}' restarts"
        if row["node_id"] != node_id:
            # The client was led on when its node went away.
            return f"node '{node_id}' restarts"
        if row["degraded"]:
            # Of its process that is about to end; the next one starts without the catalog.
            return f"node '{node_id}' stops: {row['reason']}"
        if row["applied_index"] is not None and int(row["applied_index"]) >= goal:
            return ""
        words = f"node '{node_id}' has applied {row['applied_index'] or 0} of {goal}"
        words += "".join(
            f", {describe_transfer(transfer)}"
            for transfer in transfers
            if transfer["direction"] == "receive"
        )
        return words + (f"; {row['reason']}" if row["reason"] else "")

    def step_down(self, preferred: str | None) -> dict[str, str]:
        """Hand leadership over.

        Returns:
            ``result`` in words and ``leader_id``.

        Raises:
            ClusterError: why nobody else leads.

        """
        with self._reach() as session:
            row = session.rows("quack_transfer_leadership", preferred)[0]
        return {"result": str(row["result"]), "leader_id": str(row["leader_id"])}

    def rebalance(self) -> str:
        """Move the groups to the nodes that should lead them; what moved, in words.

        Raises:
            ClusterError: why nothing could be asked.

        """
        with self._reach() as session:
            return str(session.rows("quack_rebalance")[0]["result"])

    def _reach(self) -> NodeSession:
        """Open a session with the node that leads; with the next one when it is lost meanwhile."""
        while True:
            target = self._look()[0]
            try:
                return target.open()
            except ClusterError as error:
                if code_of(error) not in _CURABLE:
                    raise
                self._say(_first_line(error))
                self._pause(error)

    def _say(self, words: str) -> None:
        if words != self._last:
            self._progress(words)
        self._last = words

    def _pause(self, error: ClusterError) -> None:
        if time.monotonic() + _PAUSE_S > self._deadline:
            raise ClusterError(f"not done within {self._timeout_s:.0f} s: {error}") from error
        time.sleep(_PAUSE_S)

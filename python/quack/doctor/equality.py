"""What the nodes last found when they compared what they hold."""

from __future__ import annotations

from typing import Any

from quack.doctor.findings import Report

__all__ = ["check_equality"]

#: Verdicts that say something about a value; the others say that it is not known yet.
_SETTLED = {"equal", "odd", "no_majority", "differs"}


def check_equality(report: Report, name: str, rows: list[dict[str, Any]]) -> None:
    """Report what one node knows of the newest comparison of each object on each node.

    Args:
        report: gets the findings; none when nothing was compared since the node started.
        name: what to call the node that was asked.
        rows: its ``quack_checksums()``.

    """
    newest: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["log_index"])):
        if row["verdict"] in _SETTLED:
            key = (row["node_id"], row["schema"], row["type"], row["object"])
            newest[key] = row
    for row in newest.values():
        if row["verdict"] == "equal":
            continue
        words = f"{row['type']} {row['schema'] or ''}.{row['object']} of node {row['node_id']}"
        words += f" at index {row['log_index']} of group {row['group']}: "
        words += f"{row['rows']} rows, hash {row['hash']}" if row["hash"] else "does not exist"
        if row["verdict"] == "odd":
            report.bad(
                "equality",
                name,
                f"{words}; the majority of the voters holds something else",
                f"quack cluster node reseed {row['node_id']}",
            )
        else:
            report.bad(
                "equality",
                name,
                f"{words}; the voters differ, and no majority says who is right",
                "find the right one (FROM quack_state_hash('cp') on each node), then reseed or"
                " replace the others",
            )
    if newest and all(row["verdict"] == "equal" for row in newest.values()):
        index = max(int(row["log_index"]) for row in newest.values())
        nodes = sorted({str(row["node_id"]) for row in newest.values()})
        objects = len({key[1:] for key in newest})
        report.good(
            "equality", name, f"{objects} objects are equal on {', '.join(nodes)} at index {index}"
        )

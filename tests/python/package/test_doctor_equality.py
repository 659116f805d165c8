"""Goal: the doctor tells what the newest comparison of the nodes found, and nothing older."""

from __future__ import annotations

from typing import Any

from quack.doctor.equality import check_equality
from quack.doctor.findings import Finding, Report


def row(index: int, node: str, verdict: str, value: str = "aa", name: str = "t") -> dict[str, Any]:
    return {
        "log_index": index,
        "group": "root",
        "node_id": node,
        "schema": "main",
        "object": name,
        "type": "table",
        "rows": 3 if value else None,
        "hash": value or None,
        "verdict": verdict,
        "reason": "",
    }


def findings(rows: list[dict[str, Any]]) -> list[Finding]:
    report = Report()
    check_equality(report, "n0", rows)
    return report.findings


def test_equal_nodes_are_well() -> None:
    (finding,) = findings(
        [row(5, "n0", "equal"), row(5, "n1", "equal"), row(5, "n1", "equal", name="u")]
    )
    assert finding.level == "ok"
    assert finding.message == "2 objects are equal on n0, n1 at index 5"


def test_the_odd_node_and_its_object_are_named_with_the_command() -> None:
    rows = [row(5, "n0", "equal"), row(5, "n1", "odd", "bb"), row(5, "n2", "equal")]
    (finding,) = findings(rows)
    assert finding.level == "problem" and finding.fix == "quack cluster node reseed n1"
    assert "table main.t of node n1 at index 5 of group root: 3 rows, hash bb" in finding.message
    (finding,) = findings([row(5, "n0", "equal"), row(5, "n1", "odd", "")])
    assert "does not exist" in finding.message


def test_a_tie_blames_nobody() -> None:
    found = findings([row(5, "n0", "no_majority"), row(5, "n1", "no_majority", "bb")])
    assert [finding.level for finding in found] == ["problem", "problem"]
    assert all("no majority says who is right" in finding.message for finding in found)


def test_what_was_healed_since_is_over() -> None:
    rows = [row(5, "n0", "equal"), row(5, "n1", "odd", "bb")]
    rows += [row(9, "n0", "equal"), row(9, "n1", "equal")]
    assert [finding.level for finding in findings(rows)] == ["ok"]
    # A round that is not complete, or that a node sat out, takes nothing back.
    later = [row(12, "n1", "pending", "cc"), row(12, "n0", "not_computed", "")]
    assert [finding.level for finding in findings(rows[:2] + later)] == ["problem"]


def test_nothing_compared_is_no_finding() -> None:
    assert findings([]) == []
    assert findings([row(5, "n0", "pending")]) == []

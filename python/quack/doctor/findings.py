"""What the doctor found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "Level", "Report"]

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    subject: str
    level: Level
    message: str
    fix: str = ""


@dataclass
class Report:
    """All findings, in the order in which they were made."""

    findings: list[Finding] = field(default_factory=list)

    def good(self, check: str, subject: str, message: str) -> None:
        """Note that something is as it should be."""
        self.findings.append(Finding(check, subject, "ok", message))

    def warn(self, check: str, subject: str, message: str, fix: str) -> None:
        """Note what will become a problem."""
        self.findings.append(Finding(check, subject, "warning", message, fix))

    def bad(self, check: str, subject: str, message: str, fix: str) -> None:
        """Note a problem."""
        self.findings.append(Finding(check, subject, "problem", message, fix))

    @property
    def ok(self) -> bool:
        """Whether there is no problem; warnings are none."""
        return not any(finding.level == "problem" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

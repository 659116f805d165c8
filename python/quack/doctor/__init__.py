"""Examines a node and its peers; every finding comes with its fix."""

from quack.doctor.examine import examine_config, examine_url
from quack.doctor.findings import Finding, Level, Report

__all__ = ["Finding", "Level", "Report", "examine_config", "examine_url"]

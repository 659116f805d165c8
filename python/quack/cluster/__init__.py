"""Bootstrapping clusters and running them as local processes."""

from __future__ import annotations

from quack.cluster.bootstrap import GeneratedNode, generate_local_configs
from quack.cluster.local import LocalCluster

__all__ = ["GeneratedNode", "LocalCluster", "generate_local_configs"]

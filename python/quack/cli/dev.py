"""`quack dev`: a cluster on this machine, made and run by one command."""

from __future__ import annotations

import pathlib
import signal
import threading

from rich.console import Console

from quack.cluster.bootstrap import GeneratedNode, generate_local_configs
from quack.cluster.local import LocalCluster
from quack.config import load_config
from quack.errors import ConfigError

__all__ = ["run_dev"]


def _existing(folder: pathlib.Path) -> list[GeneratedNode]:
    found = []
    for file in sorted(folder.glob("node*.yaml")):
        config = load_config(file)
        mode = config.cluster_mode
        found.append(
            GeneratedNode(config.node_id(), mode.advertised_host, mode.cp_metadata_port, file)
        )
    return found


def run_dev(folder: pathlib.Path, nodes: int) -> int:
    """Generate or reopen ``folder``, start the voters, print how to attach, wait for Ctrl-C.

    Returns:
        0 when every voter stopped cleanly.

    """
    console = Console()
    folder = folder.resolve()
    generated = _existing(folder)
    if generated and len(generated) != nodes:
        raise ConfigError([f"{folder}: holds {len(generated)} nodes, --nodes is {nodes}"])
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    cluster = LocalCluster(folder, generated or generate_local_configs(folder, nodes))
    with cluster:
        cluster.start()
        console.print(
            f"[bold]{nodes} voters are running[/bold]; logs: {folder}/n*/node.log", soft_wrap=True
        )
        console.print("Attach from any DuckDB session with the extension loaded:")
        for node in cluster.nodes:
            # The token stays in its file; it is not printed.
            statement = cluster.attach_sql(node).replace(cluster.token, "<token>")
            console.print(f"  {statement};", soft_wrap=True, highlight=False, markup=False)
        end = f"<token> is in {folder}/token. Ctrl-C stops the cluster."
        console.print(end, markup=False, soft_wrap=True)
        while not stop.wait(1.0):
            for node in cluster.nodes:
                if node.process is not None and not node.running():
                    console.print(f"[red]{node.node_id} ended[/red]; see {node.log_file}")
                    node.process = None
        codes = cluster.stop()
    return 0 if all(code == 0 for code in codes.values()) else 1

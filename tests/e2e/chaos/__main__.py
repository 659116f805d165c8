"""Entry point: `python -m chaos --seed 7 soak --minutes 2`; other runs: commits, loss, members, failovers.

The last line of standard output is one JSON object with `ok` and the figures; the exit code is 0
only when `ok` is true. The whole report, the histories and, after a failure, the nodes' logs and
data lie in the folder that is named there.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import secrets
import shutil
import sys
import time
from typing import Any

from chaos import commit_kills, failovers, lossy, members, soak
from chaos.nemesis import KINDS
from chaos.stage import stage
from chaos.workloads import SOAK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seed", type=int, help="draws everything; chosen and printed when omitted"
    )
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("build/chaos"))
    parser.add_argument("--network", default="auto", choices=["auto", "namespaces", "loopback"])
    modes = parser.add_subparsers(dest="mode", required=True)
    main = modes.add_parser("soak", help="all workloads under drawn faults")
    main.add_argument("--minutes", type=float, default=2.0)
    main.add_argument("--workloads", default=",".join(SOAK))
    main.add_argument("--kinds", default="", help=f"of faults: {','.join(KINDS)}")
    main.add_argument("--clients", type=int, default=3, help="per workload")
    commits = modes.add_parser("commits", help="the leader dies or pauses inside COMMIT")
    commits.add_argument("--rounds", type=int, default=1000)
    loss = modes.add_parser("loss", help="forwarded inserts while a fifth of all packets is lost")
    loss.add_argument("--rows", type=int, default=100_000)
    changes = modes.add_parser("members", help="the voter set changes under load, 3 to 5 and back")
    changes.add_argument("--rounds", type=int, default=100)
    kills = modes.add_parser("failovers", help="time from SIGKILL of the leader to the next write")
    kills.add_argument("--failovers", type=int, default=50)
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _summary(report: dict[str, Any]) -> dict[str, Any]:
    """The report without its long lists."""
    short = {k: v for k, v in report.items() if not isinstance(v, dict | list)}
    short["problems"] = [text[:600] for text in report.get("problems", [])[:5]]
    for name in ("first_write_ms", "every_client_ms", "told", "truths", "commit_ms"):
        if name in report:
            short[name] = report[name]
    if "verdicts" in report:
        short["verdicts"] = {name: one["ok"] for name, one in report["verdicts"].items()}
    if "operations" in report:
        short["operations"] = {
            name: {key: one.get(key, 0) for key in ("ok", "fail", "unknown")}
            for name, one in report["operations"].items()
        }
    return short


def _run(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, Any]:
    if arguments.mode == "soak":
        return _soak(arguments, folder)
    seed = arguments.seed
    settings = lossy.SETTINGS if arguments.mode == "loss" else None
    hosts = 5 if arguments.mode == "members" else 3
    with stage(folder, seed, arguments.network, settings, hosts) as cluster:
        if arguments.mode == "commits":
            return commit_kills.run(cluster, seed, arguments.rounds, _say)
        if arguments.mode == "loss":
            return lossy.run(cluster, folder, seed, arguments.rows, _say)
        if arguments.mode == "members":
            return members.run(cluster, folder, seed, arguments.rounds, _say)
        return failovers.run(cluster, seed, arguments.failovers, _say)


def _soak(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, Any]:
    plan = soak.Plan(
        seed=arguments.seed,
        minutes=arguments.minutes,
        folder=folder,
        workloads=arguments.workloads.split(","),
        kinds=arguments.kinds.split(",") if arguments.kinds else None,
        network=arguments.network,
        clients=arguments.clients,
    )
    return soak.run(plan, _say)


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.seed is None:
        arguments.seed = secrets.randbelow(1 << 31)
    _say(f"seed {arguments.seed}")
    folder = arguments.dir.resolve() / f"{arguments.mode}-{arguments.seed}"
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    report = _run(arguments, folder)
    report["mode"] = arguments.mode
    report["seconds"] = round(time.monotonic() - begun, 1)
    report["report"] = str(folder / "report.json")
    (folder / "report.json").write_text(json.dumps(report, indent=1, default=str) + "\n")
    if report["ok"]:
        shutil.rmtree(folder / "cluster", ignore_errors=True)
    print(json.dumps(_summary(report), default=str))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

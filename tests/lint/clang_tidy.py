#!/usr/bin/env python3
"""Runs clang-tidy over the C++ sources, run by `make lint`.

A source is checked again only when it, one of the project's headers it includes, its compile
command, the checks or the tool changed: results are kept in the cache folder outside the tree.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cpp" / "cmake"))

import fetch_duckdb  # noqa: E402

INCLUDE = re.compile(r'^#include "((?:quack|unit|sim|support)/[^"]+)"', re.MULTILINE)
CHECKS = ROOT / ".clang-tidy"


class Fingerprints:
    """Hash of a source with everything of the project that it includes."""

    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self.direct: dict[pathlib.Path, tuple[bytes, list[pathlib.Path]]] = {}

    def _read(self, file: pathlib.Path) -> tuple[bytes, list[pathlib.Path]]:
        if file not in self.direct:
            text = file.read_bytes()
            names = INCLUDE.findall(text.decode())
            found = [ROOT / base / name for name in names for base in ("cpp", "tests")]
            headers = [header for header in found if header.is_file()]
            self.direct[file] = (hashlib.sha256(text).digest(), headers)
        return self.direct[file]

    def of(self, source: pathlib.Path, command: str) -> str:
        seen: set[pathlib.Path] = set()
        waiting = [source]
        while waiting:
            file = waiting.pop()
            if file not in seen:
                seen.add(file)
                waiting.extend(self._read(file)[1])
        total = hashlib.sha256(self.salt + command.replace(str(ROOT), ".").encode())
        for file in sorted(seen):
            total.update(str(file.relative_to(ROOT)).encode() + self.direct[file][0])
        return total.hexdigest()


def check(tool: pathlib.Path, build: pathlib.Path, source: pathlib.Path) -> str:
    """What clang-tidy finds in one source; empty when it is clean."""
    command = [
        tool,
        "--quiet",
        "-p",
        build,
        "--extra-arg=-Wno-error",
        "--extra-arg=-Wno-unknown-warning-option",
        "--extra-arg=-Wno-ignored-gch",
        source,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout.strip() or done.stderr.strip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a configured build tree")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="only these (default: all)")
    arguments = parser.parse_args()
    tool = pathlib.Path(sys.executable).with_name("clang-tidy")
    version = subprocess.run([tool, "--version"], capture_output=True, check=True).stdout
    entries = json.loads((arguments.build / "compile_commands.json").read_text())
    commands = {pathlib.Path(entry["file"]): entry["command"] for entry in entries}
    tracked = subprocess.run(
        ["git", "ls-files", "cpp/*.cpp"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    wanted = {file.resolve() for file in arguments.files} or {ROOT / name for name in tracked}
    unknown = sorted(wanted - commands.keys())
    if unknown:
        print("no compile command for", *unknown, file=sys.stderr)
        return 1
    cache = fetch_duckdb.cache_dir() / "clang-tidy"
    cache.mkdir(parents=True, exist_ok=True)
    prints = Fingerprints(version + CHECKS.read_bytes())
    keys = {source: prints.of(source, commands[source]) for source in sorted(wanted)}
    todo = [source for source, key in keys.items() if not (cache / key).exists()]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda source: check(tool, arguments.build, source), todo)
        for source, findings in zip(todo, results, strict=True):
            if findings:
                failures += 1
                print(findings, flush=True)
            else:
                (cache / keys[source]).touch()
    checked = f"{len(todo)} of {len(keys)} sources checked, {len(keys) - len(todo)} unchanged"
    print(f"clang-tidy: {checked}, {failures} with findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Puts the pinned DuckDB source tree into the cache folder and prints its path.

The source is the PyPI sdist of the pinned version, fetched by pip by package name and checked
against the pinned SHA-256. Idempotent: an unpacked tree is used as it is. The cache folder is
$QUACK_CACHE_DIR, else $XDG_CACHE_HOME/quack-duckdb, else ~/.cache/quack-duckdb.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

PIN_FILE = pathlib.Path(__file__).with_name("duckdb_pin.json")


def cache_dir() -> pathlib.Path:
    if explicit := os.environ.get("QUACK_CACHE_DIR"):
        return pathlib.Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "quack-duckdb"


def sha256_of(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download(pin: dict[str, str], folder: pathlib.Path) -> pathlib.Path:
    """pip writes metadata by building; it needs a working build front end, nothing is compiled."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        "duckdb",
    ]
    command += ["--dest", str(folder), f"duckdb=={pin['version']}"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    archive = folder / pin["sdist"]
    found = sha256_of(archive)
    if found != pin["sdist_sha256"]:
        raise SystemExit(
            f"{archive.name}: SHA-256 is {found}, expected {pin['sdist_sha256']} "
            "(cpp/cmake/duckdb_pin.json)"
        )
    return archive


def fetch(pin: dict[str, str]) -> pathlib.Path:
    """Return the DuckDB source tree, downloaded and unpacked when it is not in the cache yet."""
    target = cache_dir() / f"duckdb-{pin['version']}"
    source = target / "external" / "duckdb"
    if not (target / ".complete").exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
            folder = pathlib.Path(scratch)
            with tarfile.open(download(pin, folder)) as archive:
                archive.extractall(folder / "tree", filter="data")
            (unpacked,) = (folder / "tree").iterdir()
            (unpacked / ".complete").write_text(pin["sdist_sha256"] + "\n")
            shutil.rmtree(target, ignore_errors=True)
            unpacked.rename(target)
    if not (source / "src" / "include" / "duckdb.hpp").exists():
        raise SystemExit(f"{source}: not a DuckDB source tree")
    return source


def main() -> int:
    print(fetch(json.loads(PIN_FILE.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

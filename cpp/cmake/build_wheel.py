#!/usr/bin/env python3
"""Builds the release: a self-contained extension and a wheel in wheels/, then tries it.

DuckDB is compiled once as a static library into the cache folder (about half an hour on two cores)
and reused. The wheel is installed into a fresh virtual environment and has to pass a smoke test
there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import fetch_duckdb

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMOKE_TEST = ROOT / "tests" / "e2e" / "wheel_smoke.py"


def run(*command: object, **options: object) -> None:
    print("+", *command, file=sys.stderr, flush=True)
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr, **options)


def archive_path(pin: dict[str, str]) -> pathlib.Path:
    folder = fetch_duckdb.cache_dir() / f"duckdb-{pin['version']}-static"
    return folder / "src" / "libduckdb_static.a"


def static_duckdb(source: pathlib.Path, pin: dict[str, str], jobs: int) -> pathlib.Path:
    """Build libduckdb_static.a in one fixed folder: ccache keys on it, a second build is free."""
    archive = archive_path(pin)
    folder = archive.parents[1]
    if (folder / ".complete").exists() and archive.exists():
        return archive
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "OVERRIDE_GIT_DESCRIBE": pin["git_describe"],
        "GIT_COMMIT_HASH": pin["git_commit"],
        "DUCKDB_EXPLICIT_PLATFORM": pin["platform"],
        # x86-64-v2 instead of v3: the file must run on older processors.
        "DUCKDB_OPTIMIZATION_PROFILE": "EXTENSION",
        "BUILD_SHELL": "0",
        "BUILD_UNITTESTS": "0",
        "ENABLE_UNITTEST_CPP_TESTS": "0",
        "BUILD_EXTENSIONS": "",
        "CMAKE_POSITION_INDEPENDENT_CODE": "ON",
    }
    flags = [f"-D{name}={value}" for name, value in definitions.items()]
    run("cmake", "-S", source, "-B", folder, "-G", "Ninja", *flags)
    run("cmake", "--build", folder, "-j", jobs, "--target", "duckdb_static")
    (folder / ".complete").write_text("\n")
    return archive


def build_wheel(source: pathlib.Path, archive: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"QUACK_DUCKDB_SOURCE": source, "QUACK_DUCKDB_STATIC": archive}
        flags = [f"-Ccmake.define.{name}={value}" for name, value in settings.items()]
        run(
            sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
            "-w", scratch, *flags, ROOT,
        )  # fmt: skip
        (raw,) = pathlib.Path(scratch).glob("*.whl")
        path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
        for old in out.glob("*.whl"):
            old.unlink()
        run(
            sys.executable, "-m", "auditwheel", "repair", "-w", out, raw,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
    (wheel,) = out.glob("*.whl")
    return wheel


def smoke_test(wheel: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        environment = pathlib.Path(scratch) / "venv"
        python = environment / "bin" / "python"
        run(sys.executable, "-m", "venv", environment)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "QUACK_EXTENSION")}
        shutil.copy(SMOKE_TEST, scratch)
        run(python, pathlib.Path(scratch) / SMOKE_TEST.name, cwd=scratch, env=clean)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only-duckdb", action="store_true", help="stop after the static library")
    parser.add_argument("--print-archive", action="store_true", help="name the static library")
    arguments = parser.parse_args()
    pin = json.loads(fetch_duckdb.PIN_FILE.read_text())
    if arguments.print_archive:
        print(archive_path(pin))
        return 0
    source = fetch_duckdb.fetch(pin)
    archive = static_duckdb(source, pin, arguments.jobs)
    if arguments.only_duckdb:
        print(json.dumps({"ok": True, "static_library_mb": archive.stat().st_size >> 20}))
        return 0
    wheel = build_wheel(source, archive, ROOT / "wheels")
    smoke_test(wheel)
    print(json.dumps({"ok": True, "wheel": wheel.name, "size_mb": wheel.stat().st_size >> 20}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

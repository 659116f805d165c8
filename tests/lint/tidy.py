#!/usr/bin/env python3
"""The project's own rules for C++ sources, run by `make lint`.

Checks, each with the file and line:
- include direction: a file of a layer includes only layers it may know, and DuckDB only from
  `catalog` up;
- banned calls in `raft` and `wire`: no clock, thread, randomness or IO;
- length ratchet: functions of at most 70 lines and files of at most 800, unless listed in
  ratchet.json with the length they had; a listed length may only shrink;
- words that must not be left behind.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RATCHET_FILE = pathlib.Path(__file__).with_name("ratchet.json")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800

# What each layer may include. The picture is in cpp/ARCHITECTURE.md.
ALLOWED = {
    "common": {"common"},
    "raft": {"raft", "common"},
    "wire": {"wire", "raft", "common"},
    "storage": {"storage", "raft", "common"},
    "transport": {"transport", "common"},
    "node": {"node", "raft", "wire", "storage", "transport", "common"},
    "catalog": {"catalog", "node", "raft", "wire", "common"},
    "sql": {"sql", "catalog", "node", "raft", "storage", "transport", "wire", "common"},
}
KNOWS_DUCKDB = {"catalog", "sql"}
PURE = {"raft", "wire"}
BANNED_IN_PURE = {
    r"std::chrono": "take time from Event::now",
    r"std::(thread|mutex|atomic|condition_variable|async)\b": "one owner thread, no locks",
    r"std::(random_device|mt19937|rand)\b|\brand\(": "use quack::Prng with a seed from Config",
    r"\b(fopen|open|read|write|socket|fsync|fdatasync|clock_gettime|time)\s*\(": "no IO here",
    r"#include <(thread|mutex|atomic|chrono|random|fstream|iostream|unistd\.h|sys/[a-z]+\.h)>": (
        "not allowed in a sans-IO layer"
    ),
}
LEFT_BEHIND = re.compile(r"\b(FIXME|XXX|TODO)\b")


def sources() -> list[pathlib.Path]:
    listed = subprocess.run(
        ["git", "ls-files", "cpp", "tests"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [ROOT / name for name in listed.stdout.splitlines()]
    return [file for file in files if file.suffix in (".cpp", ".hpp") and file.exists()]


def layer_of(file: pathlib.Path) -> str | None:
    parts = file.relative_to(ROOT).parts
    return parts[2] if parts[:2] == ("cpp", "quack") and len(parts) > 3 else None


def strip_comments(text: str) -> str:
    """Blank out comments and string contents, keeping line numbers."""
    pattern = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), text)


def check_includes(file: pathlib.Path, layer: str, text: str) -> list[str]:
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#include [<"]([^>"]+)[>"]', line)
        if not found:
            continue
        name = found.group(1)
        where = f"{file.relative_to(ROOT)}:{number}"
        if name.startswith("quack/"):
            target = name.split("/")[1]
            if target not in ALLOWED[layer]:
                problems.append(f"{where}: layer {layer} may not include {target}")
        elif re.match(r"duckdb", name) and layer not in KNOWS_DUCKDB:
            problems.append(f"{where}: layer {layer} may not know DuckDB")
    return problems


def check_banned(file: pathlib.Path, text: str) -> list[str]:
    problems = []
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        for pattern, instead in BANNED_IN_PURE.items():
            if re.search(pattern, line):
                problems.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}: {instead}")
    return problems


def functions(text: str) -> list[tuple[str, int, int, bool]]:
    """Return (name, first line, length, only dispatches) of every function body.

    Relies on clang-format's layout: a body opens with ` {` at the end of a line that holds (or
    continues) a parameter list, and closes with a brace at the same indentation.
    """
    lines = strip_comments(text).splitlines()
    found = []
    opener = re.compile(
        r"^(\t*)(?!\s)(?!.*\b(?:if|for|while|switch|catch|namespace|struct|class|enum|do|else)\b)"
        r".*\).*\{$"
    )
    for position, line in enumerate(lines):
        match = opener.match(line)
        if not match or line.lstrip().startswith(("}", ")", "[", "return")):
            continue
        indent = match.group(1)
        end = position + 1
        while end < len(lines) and not re.match(rf"^{indent}\}}", lines[end]):
            end += 1
        name = re.search(r"([A-Za-z_~][\w:~]*)\s*\(", line)
        body = "\n".join(lines[position + 1 : end])
        dispatch = len(re.findall(r"\bcase\b", body)) * 4 > end - position
        found.append(
            (name.group(1) if name else line.strip(), position + 1, end - position, dispatch)
        )
    return found


def check_lengths(
    file: pathlib.Path, text: str, ratchet: dict[str, int], seen: dict[str, int]
) -> list[str]:
    problems = []
    name = str(file.relative_to(ROOT))
    count = text.count("\n")
    if count > FILE_LINES_MAX:
        seen[name] = count
        if count > ratchet.get(name, FILE_LINES_MAX):
            problems.append(f"{name}:1: {count} lines, at most {ratchet.get(name, FILE_LINES_MAX)}")
    for function, line, length, dispatch in functions(text):
        key = f"{name}::{function}"
        if length > FUNCTION_LINES_MAX and not dispatch:
            seen[key] = length
            if length > ratchet.get(key, FUNCTION_LINES_MAX):
                limit = ratchet.get(key, FUNCTION_LINES_MAX)
                problems.append(f"{name}:{line}: {function} has {length} lines, at most {limit}")
    return problems


def run(update: bool) -> list[str]:
    ratchet: dict[str, int] = json.loads(RATCHET_FILE.read_text()) if RATCHET_FILE.exists() else {}
    seen: dict[str, int] = {}
    problems: list[str] = []
    for file in sources():
        text = file.read_text()
        layer = layer_of(file)
        if layer is not None and layer not in ALLOWED:
            problems.append(f"{file.relative_to(ROOT)}:1: unknown layer {layer}")
        elif layer is not None:
            problems += check_includes(file, layer, text)
            if layer in PURE:
                problems += check_banned(file, text)
        for number, line in enumerate(text.splitlines(), 1):
            if LEFT_BEHIND.search(line):
                problems.append(f"{file.relative_to(ROOT)}:{number}: left behind: {line.strip()}")
        problems += check_lengths(file, text, ratchet, seen)
    for key in sorted(set(ratchet) - set(seen)):
        problems.append(f"tests/lint/ratchet.json: '{key}' is short enough now; remove the entry")
    for key, limit in ratchet.items():
        if key in seen and seen[key] < limit:
            problems.append(f"tests/lint/ratchet.json: '{key}' shrank to {seen[key]}; lower it")
    if update:
        RATCHET_FILE.write_text(json.dumps(dict(sorted(seen.items())), indent=2) + "\n")
    return problems


def main() -> int:
    problems = run("--update-ratchet" in sys.argv[1:])
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

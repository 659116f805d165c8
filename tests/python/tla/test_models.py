"""The TLA+ models of cpp/GROUPS.md: the smallest ones hold, and TLC notices broken rules. `make tla` runs all."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

TLA = Path(__file__).resolve().parents[2] / "tla"
#: TLC on a machine that does other things beside; it takes 2 to 5 s each.
TIMEOUT_S = 120.0


def load_check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tla_check", TLA / "check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


check = load_check()
CONFIGS = {f"{config.parent.name}/{config.stem}": config for config in check.configs("large")}
#: What every model checks, by invariants in one and by time in another.
PROPERTIES = {
    "Agreement",
    "Atomicity",
    "Once",
    "RowsKept",
    "LocksExclude",
    "NoCircle",
    "Serializable",
    "SomeoneWins",
    "Released",
}


@pytest.mark.parametrize(
    "name",
    ["small/commit", "small/create_seek", "mutants/prepares-not-needed", "mutants/nobody-finishes"],
)
def test_tlc_finds_what_is_expected(name: str) -> None:
    outcome = check.run(CONFIGS[name], workers=1, heap_mb=500, timeout_s=TIMEOUT_S)
    assert check.problem_of(CONFIGS[name], outcome) is None, outcome.output
    assert outcome.distinct > 50, outcome.output


def test_a_mutant_that_nothing_notices_is_a_problem(tmp_path: Path) -> None:
    """A broken rule under a property that does not depend on it."""
    config = check.HERE / "mutants" / "planned-version-not-needed.cfg"
    unrelated = tmp_path / config.name
    unrelated.write_text(config.read_text().replace("Agreement", "NoCircle"))
    outcome = check.run(unrelated, workers=1, heap_mb=500, timeout_s=TIMEOUT_S)
    assert outcome.violated is None
    assert "NoCircle holds although the rule is broken" in check.problem_of(
        config=unrelated, outcome=outcome
    )


def test_every_property_has_a_mutant_and_every_model_checks_them() -> None:
    noticed_by = set()
    for name, config in CONFIGS.items():
        invariants, temporal = check.properties_of(config)
        if name.startswith("mutants/"):
            assert check.mutant_of(config) == config.stem
            assert len(invariants + temporal) == 1, name
            noticed_by |= {*invariants, *temporal}
        else:
            assert check.mutant_of(config) == "", name
            assert set(invariants) == PROPERTIES - {"Released"} or temporal == ["Released"], name
    assert noticed_by == PROPERTIES


def test_every_broken_rule_of_the_model_has_a_configuration() -> None:
    """A misspelt mutant would break nothing."""
    known = set(re.findall(r'Is\("([^"]+)"\)', (TLA / "Groups.tla").read_text()))
    assert known == {config.stem for name, config in CONFIGS.items() if name.startswith("mutants/")}

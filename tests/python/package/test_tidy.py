"""Goal: the lint notices what it is there for. Each rule is shown a breach and a clean twin."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest

FILE = pathlib.Path(__file__).parents[2] / "lint" / "tidy.py"


@pytest.fixture(scope="module")
def tidy():
    spec = importlib.util.spec_from_file_location("tidy", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_include_direction(tidy):
    file = tidy.ROOT / "cpp/quack/raft/raft.cpp"
    assert tidy.check_includes(file, "raft", '#include "quack/common/status.hpp"\n') == []
    assert (
        "may not include storage"
        in tidy.check_includes(file, "raft", '#include "quack/storage/log_store.hpp"\n')[0]
    )
    assert "may not know DuckDB" in tidy.check_includes(file, "node", '#include "duckdb.hpp"\n')[0]
    assert tidy.check_includes(file, "catalog", '#include "duckdb/main/connection.hpp"\n') == []


def test_banned_calls_but_not_in_comments_or_strings(tidy):
    file = tidy.ROOT / "cpp/quack/raft/raft.cpp"
    assert tidy.check_banned(file, '// std::thread\nauto a = "std::mutex";\n') == []
    assert len(tidy.check_banned(file, "std::mutex lock;\nauto t = time(nullptr);\n")) == 2


def test_function_length(tidy):
    file = tidy.ROOT / "cpp/quack/raft/raft.cpp"
    body = "".join(f"\tcall_{n}();\n" for n in range(80))
    long = f"void Raft::Long(int a) {{\n{body}}}\n"
    seen: dict[str, int] = {}
    assert "Raft::Long has 81 lines" in tidy.check_lengths(file, long, {}, seen)[0]
    assert tidy.check_lengths(file, long, {"cpp/quack/raft/raft.cpp::Raft::Long": 81}, seen) == []
    assert tidy.check_lengths(file, "void Short() {\n\tcall();\n}\n", {}, seen) == []


def test_a_dispatching_switch_is_exempt(tidy):
    cases = "".join(f"\tcase {n}:\n\t\treturn F{n}();\n" for n in range(60))
    text = f"int Dispatch(int a) {{\n\tswitch (a) {{\n{cases}\t}}\n}}\n"
    assert tidy.check_lengths(tidy.ROOT / "cpp/a.cpp", text, {}, {}) == []

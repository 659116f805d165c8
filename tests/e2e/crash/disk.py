"""The disk that loses what was not synced (power_cut.cpp), put under a node process."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import struct
import subprocess

from quack.cluster.local import LocalNode

_SOURCE = pathlib.Path(__file__).with_name("power_cut.cpp")


def build_disk(folder: pathlib.Path) -> pathlib.Path:
    """Compile the library that is preloaded; returns its path."""
    library = folder / "power_cut.so"
    command = ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"]
    subprocess.run([str(word) for word in command], check=True)
    return library


@dataclasses.dataclass(frozen=True)
class Cut:
    """Where a node's process ends: after so many changes of its files; 0 = never."""

    after: int
    mode: str  #: "kill": what was written stays; "power": what was not synced may go
    seed: int


class CutDisk:
    """One node's disk. Applies to the next start of the process."""

    def __init__(self, library: pathlib.Path, node: LocalNode) -> None:
        self._library = library
        self._node = node
        folder = node.log_file.parent
        self._counter = folder / "changes"
        self._aside = folder / "aside"
        self._hang = folder / "hang"
        self._fail = folder / "fail"

    def arm(self, cut: Cut) -> None:
        """The node's next process runs on this disk."""
        shutil.rmtree(self._aside, ignore_errors=True)
        self._aside.mkdir()
        self._counter.unlink(missing_ok=True)
        self._node.environment = {
            "LD_PRELOAD": str(self._library),
            "QUACK_CUT_DIR": str((self._node.log_file.parent / "data").resolve()),
            "QUACK_CUT_AFTER": str(cut.after),
            "QUACK_CUT_MODE": cut.mode,
            "QUACK_CUT_SEED": str(cut.seed),
            "QUACK_CUT_COUNT": str(self._counter),
            "QUACK_CUT_ASIDE": str(self._aside.resolve()),
            "QUACK_CUT_HANG": str(self._hang.resolve()),
            "QUACK_CUT_FAIL": str(self._fail.resolve()),
        }

    def hang(self, part: str = "") -> None:
        """From now on no sync of a file ends whose path holds ``part``."""
        _write_at_once(self._hang, part)

    def answer(self) -> None:
        """The syncs that hang end, and later ones work."""
        self._hang.unlink(missing_ok=True)

    def fail(self, part: str) -> None:
        """The next sync of a file whose path holds ``part`` fails, and only that one."""
        _write_at_once(self._fail, part)

    def failed(self) -> list[str]:
        """Return the paths of the syncs that failed."""
        return self._failures("failed ")

    def synced_again(self) -> list[str]:
        """Return the paths of files that were synced although a sync of them had failed."""
        return self._failures("again ")

    def _failures(self, kind: str) -> list[str]:
        log = self._fail.with_name(self._fail.name + ".log")
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.removeprefix(kind) for line in lines if line.startswith(kind)]

    def disarm(self) -> None:
        """The node's next process runs on the bare disk."""
        self._node.environment = {}

    def count(self) -> int:
        """Return how many changes the process made that ran last on this disk."""
        if not self._counter.exists() or self._counter.stat().st_size < 8:
            return 0
        (count,) = struct.unpack("<Q", self._counter.read_bytes()[:8])
        return int(count)


def _write_at_once(file: pathlib.Path, text: str) -> None:
    """Whoever looks sees no file, or all of it."""
    made = file.with_name(file.name + ".new")
    made.write_text(text)
    made.replace(file)

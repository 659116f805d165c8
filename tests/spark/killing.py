"""Drivers as processes of their own, which tests can kill with everything they started."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).parents[2]
WAIT_S = 180


def wait_for(what: str, condition) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Driver:
    """Runs driver.py, or another script; see there for what is given."""

    def __init__(
        self, folder: pathlib.Path, given: dict[str, object], script: str = "driver.py"
    ) -> None:
        file = folder / "job.json"
        file.write_text(json.dumps(given))
        self.output = folder / "driver.out"
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "spark" / script), str(file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / "python"),
                    "PYSPARK_PYTHON": sys.executable,
                },
                start_new_session=True,
            )

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def has_said(self, word: str) -> bool:
        """Whether the driver said it; it must not have ended without."""
        said = word in self.text().split()
        assert said or self.process.poll() is None, self.text()[-3000:]
        return said


@contextlib.contextmanager
def streaming(
    folder: pathlib.Path, given: dict[str, object], committed: Callable[[], object]
) -> Iterator[None]:
    """Run a driver that has committed a batch since its start, or ended; kill it in the end.

    `committed` tells what the sink holds.
    """
    before = committed()
    driver = Driver(folder, given)
    try:
        wait_for("the stream starts", lambda: driver.has_said("started"))
        wait_for(
            "a batch is committed",
            lambda: driver.process.poll() is not None or committed() != before,
        )
        yield
    finally:
        driver.kill()

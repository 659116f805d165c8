"""Random writers on all replicas at once; `make stress` runs more seeds for longer."""

from __future__ import annotations

import pytest
import stress


@pytest.mark.parametrize(("seed", "seconds"), [(1, 3.0), (2, 6.0), (3, 9.0)])
def test_random_writers(seed: int, seconds: float) -> None:
    """Three replicas with three writers each, with checkpoints in between."""
    result = stress.run_in_process(seed, seconds)
    assert result["problems"] == []

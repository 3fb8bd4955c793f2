"""What --memory-limit counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxport.formats.artifact import Artifact
from onnxport.validate.debug.memory import Limit

GB = 1_000_000_000


@pytest.fixture
def candidate(tmp_path: Path) -> Artifact:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"0" * 1_000_000)
    return Artifact.open(path)


def test_what_the_caller_held_before_does_not_count(candidate: Artifact) -> None:
    held = np.ones(2 * GB // 8)
    room = Limit(1 * GB, "1GB").room(candidate, {"a": 10_000_000})
    assert held.sum()
    assert not room.note
    assert 10_000_000 < room.bytes < GB // 6


def test_what_is_taken_afterwards_counts(candidate: Artifact) -> None:
    limit = Limit(1 * GB, "1GB")
    held = np.ones(2 * GB // 8)
    room = limit.room(candidate, {"a": 10_000_000})
    assert held.sum()
    assert "more than --memory-limit allows" in room.note


def test_a_limit_that_was_not_kept_is_said() -> None:
    """In a process of its own: this one may have taken more before."""
    code = """
import numpy as np
from onnxport.validate.debug.memory import Limit
limit = Limit(1_000_000_000, "1GB")
print(repr(limit.exceeded()))
held = np.ones(250_000_000)
print(limit.exceeded())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, after = said.splitlines()
    assert before == "''"
    assert after.startswith("--memory-limit 1GB was not kept: one process alone took 2")

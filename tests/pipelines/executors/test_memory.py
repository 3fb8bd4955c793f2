"""What is estimated of a task's memory, and what there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onnxport.formats.artifact import Artifact
from onnxport.pipelines.executors import memory
from tests.pipelines.executors.acting import task

MB = 2**20


def test_an_estimate_grows_with_the_model(tmp_path: Path) -> None:
    small = task(tmp_path, "small")
    assert 300 * MB < memory.estimate(small) < 500 * MB
    with (tmp_path / "large.onnx").open("wb") as file:
        file.truncate(1000 * MB)
    large = replace(small, origin=Artifact(tmp_path / "large.onnx", "onnx"))
    assert memory.estimate(large) > 4000 * MB


@pytest.mark.parametrize(
    ("files", "megabytes"),
    [
        ({}, 800),
        ({"memory.max": "max\n", "memory.current": "5\n"}, 800),
        ({"memory.max": str(600 * MB), "memory.current": str(100 * MB)}, 400),
        ({"memory/memory.limit_in_bytes": str(600 * MB), "memory/memory.usage_in_bytes": str(100 * MB)}, 400),
        ({"memory.max": str(8000 * MB), "memory.current": str(100 * MB)}, 800),
    ],
)
def test_most_of_what_is_free_is_taken_whoever_limits_it(
    files: dict[str, str], megabytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    machine = tmp_path / "meminfo"
    machine.write_text(f"MemTotal: 9999999 kB\nMemAvailable: {1000 * 1024} kB\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_MEMINFO", machine)
    limit = memory.default_limit()
    assert limit is not None
    assert round(limit / MB) == megabytes

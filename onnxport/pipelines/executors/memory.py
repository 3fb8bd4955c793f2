"""Estimates of the memory that tasks need and of the memory that is free, so that a run starts only what fits.

A process holds its libraries and several copies of the model; benchmarks/pipelines.py --memory measures the factors.
"""

from __future__ import annotations

import os
from pathlib import Path

from onnxport.formats.artifact import Artifact
from onnxport.pipelines.executors.task import Task

_SHARE = 0.8  # of the free memory; the rest is for the system and for estimates that are too low
_BASE = 400 * 2**20  # bytes of libraries in the processes of one task
# Multiples of the model's size that a stage needs besides, its proof included, measured on ResNet-50 (102 MB) and
# YuNet. For an export it is a guess.
_FACTORS = {"tflite": 7.0, "coreml": 5.0, "ort": 8.0, "optimize": 6.5, "quantize": 14.0, "export": 8.0}
_OTHERS = max(_FACTORS.values())

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def estimate(task: Task) -> int:
    """Return the estimated peak bytes of all processes of `task`."""
    stage = "export" if task.export is not None else task.steps[-1].stage.name
    origin = task.origin
    size = origin.size if isinstance(origin, Artifact) or origin.path.exists() else 0
    return memory_of_stage(stage, size)


def memory_of_stage(stage: str, size: int) -> int:
    """Return the estimated peak bytes of a stage on a model of `size` bytes."""
    return _BASE + int(_FACTORS.get(stage, _OTHERS) * size)


def default_limit() -> int | None:
    """Return the default memory limit of a run in bytes; None if the free memory is unknown."""
    free = [each for each in (_free_of_machine(), _free_of_group()) if each is not None]
    return int(_SHARE * min(free)) if free else None


def _free_of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return _total_memory()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(found["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in found else _total_memory()


def _total_memory() -> int | None:
    """Return the machine's memory, if it does not report what is free."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _free_of_group() -> int | None:
    """Return the free bytes of this process's cgroup, version 2 or 1; None without a limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return None

"""Measured magnitudes of values, and the subprocess that measures them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxport.core.arrays import Feeds
from onnxport.core.child_process import Child, ChildTooLarge
from onnxport.core.memory import machine_memory
from onnxport.formats.input_shapes import GivenShape
from onnxport.runtimes.custom_libraries import writable

# Memory limit of the subprocess: a quarter of the machine's memory, within these bounds.
_MOST, _LEAST = 3_500_000_000, 750_000_000


@dataclass(frozen=True)
class Measured:
    """The result of a pre-flight.

    Attributes:
        peaks: name of each float value -> its largest magnitude.
        sets: number of samples run.
        failure: the reason if no sample could be run, else empty.
    """

    peaks: Mapping[str, float] = field(default_factory=dict)
    sets: int = 0
    failure: str = ""


def measure_in_subprocess(path: Path, shapes: Mapping[str, GivenShape], samples: Sequence[Feeds]) -> Measured:
    """Measure in a subprocess (preflight.py); report a failure if it needs too much memory."""
    target = "onnxport.optimizers.float16.preflight:Preflight"
    with Child(target, purpose="the float16 pre-flight", writes=writable(path.parent)) as child:
        child.memory = max(min((machine_memory() or _MOST) // 4, _MOST), _LEAST)
        try:
            measured: Measured = child.call("measure", path, shapes, list(samples))
        except ChildTooLarge as error:
            return Measured(failure=f"its runs took more than {error.taken / 1e9:.1f} GB")
    return measured

"""Measures the speedup of a lower precision on this CPU, for its report; it is never a reason to refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.child_process import ChildBug
from onnxport.core.errors import OnnxportError, printable
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.environment import instruction_sets
from onnxport.reports.run_report import Finding, Latency, StartRecord, Worth

if TYPE_CHECKING:
    from onnxport.pipelines.runner.judges import Judges
    from onnxport.quantize.latency import Start, Times

# Formats with a runtime for this CPU.
TIMED = frozenset(("onnx", "ort", "tflite"))
UNTIMED = "time and memory of a Core ML model can be measured only on its target device"


def measure_speedup(
    before: Callable[[], Artifact], made: Artifact, judge: Judges | None, folder: Path
) -> Worth:
    """Time the artefact and its float version on the first of the judge's inputs.

    `before` returns the float version, for the same runtime; `folder` is private and need not exist.
    """
    if made.format not in TIMED:
        return Worth(why_not=UNTIMED)
    if judge is None:
        return Worth(why_not="without a proof there are no inputs")
    from onnxport.quantize.speedup import measure_effect

    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = measure_effect(before().path, made.path, judge.feeds(), folder, instruction_sets())
    except (OnnxportError, ChildBug) as error:
        return Worth(why_not=printable(str(error).splitlines()[-1]))
    findings = tuple(Finding(reason=each.reason, setting=each.setting) for each in found.findings)
    return Worth(latency=latency_of(found.times), findings=findings)


def latency_of(times: Times) -> Latency:
    """Return the record of a measurement."""
    from onnxport.quantize.latency import milliseconds, speedup

    found = speedup(times)
    return Latency(
        runtime=times.runtime,
        before_ms=_round(milliseconds(times.before)),
        after_ms=_round(milliseconds(times.after)),
        speedup=_round(found.value),
        low=_round(found.low),
        high=_round(found.high),
        confidence=_round(found.confidence),
        rounds=len(times.before),
        start=None if times.start is None else _start_of(times.start),
    )


def _start_of(found: Start) -> StartRecord:
    return StartRecord(
        load_ms=_round(1000 * found.loading),
        first_ms=_round(1000 * found.first),
        second_ms=None if found.second is None else _round(1000 * found.second),
        memory=found.memory,
    )


def _round(value: float) -> float:
    return float(f"{value:.4g}")

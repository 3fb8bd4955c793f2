"""Where the time of a conversion or a proof goes: the CPU time of each stage, over all processes.

    python -m benchmarks.stages                     # `validate MODEL MODEL` of 9 models of fixtures/models.toml
    python -m benchmarks.stages --to tflite         # `convert MODEL --to tflite`
    python -m benchmarks.stages --all --seed 1      # all models, or another sample
    python -m benchmarks.stages --models yunet/face_detection_yunet_2023mar.onnx

Each command runs in fresh processes whose functions are wrapped (staging/traced.py), which costs some 2 %. CPU is user
and system time of all processes of a stage. Wall is the time of all threads in a stage; the reference's thread and the
main one overlap, so its sum exceeds that of the run. Waiting is the part of the wall time in which neither the thread
nor a child that it called computed. Peak memory is of the tree of processes (proportional set size).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.commands import Run, run_command, with_bytecode
from benchmarks.staging.ledger import STAGES, Entry, read
from fixtures import models

_SAMPLE = 9


@dataclass(frozen=True)
class Waterfall:
    """One command's stages.

    Attributes:
        stages: stage -> sums over all processes; "processes" has what no stage counts.
    """

    model: str
    run: Run
    stages: Mapping[str, Entry]

    def cpu(self, stage: str) -> float:
        return self.stages[stage].cpu + self.stages[stage].called


def waterfall(model: str, path: Path, to: str | None) -> Waterfall:
    """Run one command and sum its stages."""
    with tempfile.TemporaryDirectory(prefix="stages-") as name:
        folder = Path(name, "ledgers")
        folder.mkdir()
        work = (
            ["validate", str(path), str(path)]
            if to is None
            else ["convert", str(path), "--to", to, "-o", str(Path(name, f"made.{_SUFFIX[to]}"))]
        )
        command = [sys.executable, "-m", "benchmarks.staging.traced", str(folder), "onnxport", *work, "-q"]
        run = run_command(command, environment=with_bytecode())
        stages = {stage: Entry() for stage in STAGES}
        for file in folder.iterdir():
            for stage, entry in read(file).items():
                stages[stage] += entry
    counted = sum(entry.cpu + entry.called for entry in stages.values())
    stages["processes"] += Entry(cpu=max(run.cpu_seconds - counted, 0.0))
    return Waterfall(model, run, stages)


_SUFFIX = {"tflite": "tflite", "coreml": "mlpackage", "ort": "ort"}


def per_model(falls: Sequence[Waterfall]) -> Iterator[str]:
    """Yield a table in Markdown: CPU seconds per stage, a row per model."""
    shown = [stage for stage in STAGES if any(fall.cpu(stage) >= 0.005 for fall in falls)]
    yield "| model | wall | CPU | MB | " + " | ".join(shown) + " |"
    yield "|---" * (4 + len(shown)) + "|"
    for fall in falls:
        figures = " | ".join(f"{fall.cpu(stage):.2f}" for stage in shown)
        run = fall.run
        yield f"| {fall.model} | {run.seconds:.1f} | {run.cpu_seconds:.1f} | {run.peak:.0f} | {figures} |"


def per_stage(falls: Sequence[Waterfall]) -> Iterator[str]:
    """Yield a table in Markdown: a row per stage, sums over all models."""
    yield "| stage | CPU s | share | wall s | waiting s |"
    yield "|---|---|---|---|---|"
    total = sum(fall.run.cpu_seconds for fall in falls)
    for stage in STAGES:
        entry = sum((fall.stages[stage] for fall in falls), Entry())
        cpu = entry.cpu + entry.called
        if cpu >= 0.005:
            waiting = max(entry.wall - cpu, 0.0)
            yield f"| {stage} | {cpu:.2f} | {cpu / total:.0%} | {entry.wall:.2f} | {waiting:.2f} |"
    yield f"| all | {total:.2f} | | {sum(fall.run.seconds for fall in falls):.2f} | |"


def chosen(options: Any) -> list[str]:
    """Return the keys of the models to run."""
    if options.models:
        return list(options.models)
    keys = list(filter(lambda key: key.endswith(".onnx"), models.keys()))
    return keys if options.all else sorted(random.Random(options.seed).sample(keys, _SAMPLE))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", metavar="KEY")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", choices=tuple(_SUFFIX))
    options = parser.parse_args(arguments)
    falls = []
    waterfall("", models.path(chosen(options)[0]), options.to)  # compiles the modules
    for key in chosen(options):
        fall = waterfall(key, models.path(key), options.to)
        if fall.run.made:
            falls.append(fall)
        else:
            print(f"{key}: {fall.run.said}", file=sys.stderr)
    print("\n".join([*per_model(falls), "", *per_stage(falls)]))
    print(f"\nmedian CPU {median(fall.run.cpu_seconds for fall in falls):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measure the overhead of `onnxport run` over single commands, the gain of a second process, and the memory of tasks.

    python -m benchmarks.pipelines                # overhead and throughput, ratios in one run
    python -m benchmarks.pipelines --memory       # peaks of single tasks, for the memory estimates of the scheduler
    python -m benchmarks.pipelines --second --model minilm/minilm.onnx    # the second run over the first

Every run is the installed command in a fresh process with a cold cache. The two sides of a comparison take turns, and
the ratio is the median of the rounds. Processor time is printed beside it: a busy machine changes it less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.commands import Run, run_command, with_bytecode
from fixtures import models

MODEL = "mobilenetv2/mobilenetv2.onnx"
TARGETS = {"tflite": "tflite", "coreml": "mlpackage", "ort": "ort"}
OVERHEAD = 1.1  # at most, of `run` over the single command
THROUGHPUT = 1.6  # at least, of two processes over one
SECOND = 0.02  # at most, of the second run of a model of 90 MB over the first

# Without int8 and int8-dynamic, which are timed: what is timed runs alone.
MATRIX = """
version: 1
model: {model}
targets:
  phone: {{to: tflite, matrix: {{precision: [fp32, fp16, int8-weights], layout: [keep, nhwc]}}}}
  server: {{to: ort, matrix: {{level: [disable, basic, extended, all]}}}}
"""
ONE = """
version: 1
model: {model}
targets: {{out: {{to: {target}}}}}
"""
SHORT = """
version: 1
model: {model}
targets: {{phone: {{to: tflite}}, server: {{to: ort}}}}
"""
STEP = """
version: 1
model: {model}
stages: {{made: {step}}}
targets: {{out: {{to: onnx, from: made}}}}
"""
# For peaks of memory: kinds of tasks, in a pipeline of one.
TASKS = {
    "tflite": ONE.replace("{target}", "tflite"),
    "coreml": ONE.replace("{target}", "coreml"),
    "ort": ONE.replace("{target}", "ort"),
    "optimize": STEP.replace("{step}", "{{use: optimize}}"),
    "quantize": STEP.replace("{step}", "{{use: quantize, precision: fp16}}"),
}
SIZES = ("yunet/face_detection_yunet_2023mar.onnx", MODEL, "light/inception_v1.onnx", "light/vgg19.onnx")


@dataclass(frozen=True)
class Comparison:
    """One side's runs and the other's, round by round."""

    name: str
    first: Sequence[Run]
    second: Sequence[Run]

    def ratio(self, of: Callable[[Run], float]) -> float:
        """The first side's over the second's."""
        return statistics.median(of(a) / of(b) for a, b in zip(self.first, self.second, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--memory", action="store_true", help="peaks of memory instead")
    parser.add_argument("--second", action="store_true", help="the second run of a short pipeline instead")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default=MODEL, help="a key of fixtures/models.toml")
    given = parser.parse_args()
    console = Console(width=120)
    if given.memory:
        console.print(peaks())
        return 0
    model = models.path(given.model)
    if given.second:
        again = repetition(model, given.rounds)
        console.print(f"{given.model}, load {os.getloadavg()[0]:.1f}", shown([again]))
        return 0 if again.ratio(lambda run: run.seconds) <= SECOND else 1
    found = [
        *(overhead(model, target, given.rounds) for target in TARGETS),
        throughput(model, max(1, given.rounds // 2)),
    ]
    console.print(f"{given.model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    console.print(shown(found))
    *costs, gain = found
    kept = [cost.ratio(lambda run: run.seconds) <= OVERHEAD for cost in costs]
    return 0 if all(kept) and gain.ratio(lambda run: run.seconds) >= THROUGHPUT else 1


def overhead(model: Path, target: str, rounds: int) -> Comparison:
    """`run` on one model and one target over `convert`."""
    ran, converted = [], []
    for number in range(rounds):
        sides = [
            lambda: ran.append(pipeline(ONE.format(model=model, target=target))),
            lambda: converted.append(conversion(model, target)),
        ]
        for side in sides if number % 2 else reversed(sides):
            side()
    return Comparison(f"run over convert, {target}", ran, converted)


def repetition(model: Path, rounds: int) -> Comparison:
    """The second run of a pipeline over the first, by a user whose cache is empty."""
    first, second = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "pipeline.yaml").write_text(SHORT.format(model=model))
            for runs in (first, second):
                runs.append(_command(Path(folder), "run", "pipeline.yaml", cache=Path(folder) / "cache"))
    return Comparison("second run over first", second, first)


def throughput(model: Path, rounds: int) -> Comparison:
    """Ten artefacts by one process over the same by two."""
    one, two = [], []
    for _ in range(rounds):
        one.append(pipeline(MATRIX.format(model=model)))
        two.append(pipeline(MATRIX.format(model=model), "--jobs", "2"))
    return Comparison("10 artefacts, one process over two", one, two)


def pipeline(text: str, *options: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pipeline.yaml").write_text(text)
        return _command(Path(folder), "run", "pipeline.yaml", *options)


def conversion(model: Path, target: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        return _command(Path(folder), "convert", str(model), "--to", target, "-o", f"out.{TARGETS[target]}")


def _command(folder: Path, *words: str, cache: Path | None = None) -> Run:
    # Of this Python: PATH may have another onnxport, or none.
    environment = {name: value for name, value in with_bytecode().items() if name != "ONNXPORT_CACHE"}
    if cache is not None:
        environment["XDG_CACHE_HOME"] = str(cache)
    done = run_command(
        [sys.executable, "-P", "-m", "onnxport", *words, "--quiet"], cwd=folder, environment=environment
    )
    if not done.made:
        raise SystemExit(f"onnxport {' '.join(words)} failed: {done.said}")
    return done


def shown(found: Sequence[Comparison]) -> Table:
    table = Table("", "s", "s", "ratio", "processor s", "s", "ratio")
    for each in found:
        row: list[str] = []
        for of in (lambda run: run.seconds, lambda run: run.cpu_seconds):
            row += [f"{statistics.median(map(of, side)):.2f}" for side in (each.first, each.second)]
            row.append(f"{each.ratio(of):.3f}")
        table.add_row(each.name, *row)
    return table


def peaks() -> Table:
    """The most memory of each kind of task on models of several sizes, beyond that on the smallest."""
    table = Table("task", "model", "MB", "peak MB", "over the smallest, in sizes of the model")
    for task, text in TASKS.items():
        least: float | None = None
        for key, size, peak in _peaks_of(text):
            least = peak if least is None else least
            beyond = "" if peak is least else f"{(peak - least) / size:.1f}"
            table.add_row(task, key, f"{size:.1f}", f"{peak:.0f}", beyond)
    return table


def _peaks_of(text: str) -> Iterator[tuple[str, float, float]]:
    for key in SIZES:
        path = models.path(key)
        yield key, path.stat().st_size / 1e6, pipeline(text.format(model=path)).peak


if __name__ == "__main__":
    sys.exit(main())

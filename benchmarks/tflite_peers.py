"""All real models to TFLite by us, by onnx2tf and by onnxsim, side by side in one run: who is right, and at what cost.

    python -m benchmarks.tflite_peers --onnx2tf-python PATH --json figures.json       # and --onnxsim-python PATH
    python -m benchmarks.tflite_peers --onnx2tf-python PATH --json figures.json --resume   # the models that it lacks
    python -m benchmarks.tflite_peers --page figures.json          # the tables of docs/internals/benchmarks-tflite.md

Every conversion is a whole command in a fresh process, and every tool is told the same sizes for open dimensions. Ours
proves what it makes, the others only convert; `ours, unproven` is the same command without its proof. What is right,
and how latencies are taken, is as in benchmarks.convert: within 0.001 of the scale of ONNX Runtime's answers, whatever
the tensors are called; channels-last artefacts where the tool makes such, XNNPACK, 2 threads, blocks in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.commands import Run
from benchmarks.convert import Subject, convert_ours, examine, in_child
from benchmarks.onnx2tf import Onnx2tf, PeerMissing
from benchmarks.onnxsim import Onnxsim
from fixtures import models

OURS, UNPROVEN, ONNX2TF, ONNXSIM = "ours", "ours, unproven", "onnx2tf", "onnxsim"
PEERS = (ONNX2TF, ONNXSIM)
_LATENCY_ROUNDS = 20
_DRAWS = 2000
# Random weights, so no real models; and their size is what they measure.
_LARGE = ("light/vgg19", "light/zfnet512", "light/alexnet")

Convert = Callable[[Subject, Path], Run]


@dataclass(frozen=True)
class Figures:
    """A tool's result for a model.

    Attributes:
        cpu_seconds: of the tree of processes, as `peak`; a busy machine changes it less than `seconds`.
        ours_over_its: the median latency of our artefact over its, in the same layout.
    """

    key: str
    tool: str
    seconds: float
    cpu_seconds: float
    peak: float
    right: bool
    said: str
    megabytes: float = 0.0
    ours_over_its: float | None = None


def tools(onnx2tf: Onnx2tf | None, onnxsim: Onnxsim | None) -> dict[str, Convert]:
    """The tools' ways to convert a subject to a channels-last file."""
    found: dict[str, Convert] = {
        OURS: lambda subject, to: convert_ours(subject, to, "--layout", "nhwc", "--route", "direct"),
        UNPROVEN: lambda subject, to: convert_ours(
            subject, to, "--layout", "nhwc", "--route", "direct", "--no-validate"
        ),
    }
    if onnx2tf is not None:
        found[ONNX2TF] = lambda subject, to: onnx2tf.convert(
            subject.path, subject.told, "flatbuffer_direct", to
        )
    if onnxsim is not None:
        found[ONNXSIM] = lambda subject, to: onnxsim.convert(subject.path, subject.told, "nhwc", to)
    return found


def measured(subject: Subject, converters: Mapping[str, Convert], *, times: bool = True) -> Iterator[Figures]:
    """One model by every tool; unless `times` is false, latencies of those that are right."""
    with tempfile.TemporaryDirectory(prefix="peers-") as temp:
        right: dict[str, Path] = {}
        for tool, convert in converters.items():
            artefact = Path(temp, tool.replace(", ", "-"), "model.tflite")
            artefact.parent.mkdir()
            run = convert(subject, artefact)
            examined, said = examine(subject, artefact) if run.made else (None, run.said)
            size = artefact.stat().st_size / 1e6 if run.made else 0.0
            is_right = examined is not None and examined.right
            if examined is not None and not is_right:
                said = examined.refused or f"wrong by {examined.worst.relative:.1e} of scale"
            ratio = None
            if times and is_right and tool in PEERS and OURS in right:
                latency, _ = in_child(
                    "latency", subject.path, subject.shapes, right[OURS], artefact, _LATENCY_ROUNDS
                )
                ratio = latency.ratio.median if latency else None
            if is_right:
                right[tool] = artefact
            yield Figures(
                subject.key, tool, run.seconds, run.cpu_seconds, run.peak, is_right, said, size, ratio
            )


def page(figures: Sequence[Figures]) -> str:
    """The summary and a row per model, in Markdown."""
    by_tool = {
        tool: {each.key: each for each in figures if each.tool == tool} for tool in (OURS, UNPROVEN, *PEERS)
    }
    lines = [
        "| | models right | of | seconds, ours / its | unproven / its | CPU time, ours / its | unproven / its "
        "| memory, ours / its | size, ours / its | latency, ours / its |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for tool, found in by_tool.items():
        if found and tool != UNPROVEN:
            right = sum(each.right for each in found.values())
            lines.append(f"| {tool} | {right} | {len(found)} | {' | '.join(_against(by_tool, tool))} |")
    lines += [
        "",
        "Ratios are over the models that both get right: the median with its 95 % interval of 2000 bootstrap samples "
        "of the models, behind it the least and the most, and of how many models ours is at most its.",
        "",
    ]
    shown = [tool for tool in (OURS, *PEERS) if by_tool[tool]]
    lines += [f"| model | {' | '.join(shown)} |", f"|{'---|' * (1 + len(shown))}"]
    for key in by_tool[OURS]:
        cells = [_cell(by_tool[tool][key]) if key in by_tool[tool] else "" for tool in shown]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _against(by_tool: Mapping[str, Mapping[str, Figures]], tool: str) -> Iterator[str]:
    """The ratios of a peer's row: seconds and CPU time, proven and unproven, memory, size, latency."""
    pairs = [
        (by_tool[OURS][key], by_tool[UNPROVEN][key], its)
        for key, its in by_tool[tool].items()
        if tool in PEERS and its.right and by_tool[OURS][key].right
    ]
    for ratios in (
        [mine.seconds / its.seconds for mine, _, its in pairs],
        [unproven.seconds / its.seconds for _, unproven, its in pairs],
        [mine.cpu_seconds / its.cpu_seconds for mine, _, its in pairs],
        [unproven.cpu_seconds / its.cpu_seconds for _, unproven, its in pairs],
        [mine.peak / its.peak for mine, _, its in pairs if its.peak],
        [mine.megabytes / its.megabytes for mine, _, its in pairs],
        [its.ours_over_its for *_, its in pairs if its.ours_over_its],
    ):
        yield _summary(ratios) if ratios else ""


def _summary(ratios: Sequence[float]) -> str:
    low, high = interval(ratios)
    below = sum(ratio <= 1 for ratio in ratios)
    return (
        f"{median(ratios):.2f} ({low:.2f} to {high:.2f}); {min(ratios):.2f} to {max(ratios):.2f}; "
        f"{below} of {len(ratios)}"
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median: its percentiles over samples drawn with replacement."""
    draw = Random(0)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(_DRAWS))
    return medians[int(0.025 * _DRAWS)], medians[int(0.975 * _DRAWS)]


def _cell(figures: Figures) -> str:
    if not figures.right:
        said = figures.said.rpartition("TFLite, ")[2].replace("|", "/")
        return f"**no**: {said[:80]}"
    latency = f", latency {figures.ours_over_its:.2f}" if figures.ours_over_its else ""
    costs = f"{figures.seconds:.1f} s, CPU {figures.cpu_seconds:.1f} s, {figures.peak:.0f} MB"
    return f"{costs}, file {figures.megabytes:.2f} MB{latency}"


def _is_usual(key: str) -> bool:
    return key not in _LARGE and models.path(key).suffix == ".onnx"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, or prints the page of what was measured; 2 without a peer or for an unknown model."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tflite_peers", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--onnx2tf-python", type=Path, metavar="PATH", help="python of onnx2tf's environment")
    parser.add_argument(
        "--onnxsim-python", type=Path, metavar="PATH", help="python of onnxsim's, with TensorFlow"
    )
    parser.add_argument(
        "--models", nargs="+", metavar="KEY", help="instead of all but the largest random ones"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="every figure, anew after each model")
    parser.add_argument("--no-latency", action="store_true", help="for a busy machine")
    parser.add_argument("--resume", action="store_true", help="keep what is in --json, and measure the rest")
    parser.add_argument("--page", type=Path, metavar="FIGURES", help="print the tables of such a file")
    options = parser.parse_args(arguments)
    if options.page:
        print(page([Figures(**each) for each in json.loads(options.page.read_text())["figures"]]))
        return 0
    try:
        onnx2tf = Onnx2tf.find(options.onnx2tf_python) if options.onnx2tf_python else None
        onnxsim = Onnxsim.find(options.onnxsim_python) if options.onnxsim_python else None
        subjects = [Subject.of(key) for key in options.models or filter(_is_usual, models.keys())]
    except (PeerMissing, KeyError) as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2
    versions = {ONNX2TF: onnx2tf and dict(onnx2tf.versions), ONNXSIM: onnxsim and dict(onnxsim.versions)}
    figures: list[Figures] = []
    record: dict[str, Any] = {"versions": versions, "load": [os.getloadavg()]}
    if options.resume and options.json and options.json.exists():
        kept = json.loads(options.json.read_text())
        figures, record["load"] = [Figures(**each) for each in kept["figures"]], kept["load"]
    known = {each.key for each in figures}
    with tempfile.TemporaryDirectory() as temp:  # compiles the modules
        convert_ours(subjects[0], Path(temp, "model.tflite"))
    for subject in subjects:
        if subject.key in known:
            continue
        for each in measured(subject, tools(onnx2tf, onnxsim), times=not options.no_latency):
            print(f"{each.key}  {each.tool}  {_cell(each)}", file=sys.stderr, flush=True)
            figures.append(each)
        record["load"].append(os.getloadavg())
        if options.json:
            content = record | {"figures": [asdict(each) for each in figures]}
            options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

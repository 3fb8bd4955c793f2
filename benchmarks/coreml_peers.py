"""The real models to Core ML by us and by onnxsim's `--emit-coreml`, side by side in one run: who is right.

    python -m benchmarks.coreml_peers --onnxsim-python PATH [--write] [MODEL]...

Every conversion is a whole command in a fresh process, and both are told the same sizes for open dimensions. Ours
proves what it makes, onnxsim only converts. The packages are then run by the evaluator on the same inputs, whatever the
tensors are called. onnxsim leaves the precision to coremltools, which takes float16: both are right there within 0.02
of the scale of ONNX Runtime's answers, and in float32 within 0.001. `--write` renews docs/benchmarks-coreml-peers.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.artefacts import generated, permuted, reference_answers, worst_of
from benchmarks.commands import Run, run_command
from benchmarks.convert import Subject
from benchmarks.matching import match_inputs, match_outputs
from benchmarks.onnx2tf import PeerMissing
from benchmarks.onnxsim import Onnxsim
from fixtures import models
from onnxport.core.errors import OnnxportError
from onnxport.runtimes.mlprogram import MilRuntime

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "benchmarks-coreml-peers.md"
FLOAT32, FLOAT16, ONNXSIM = "ours, float32", "ours, float16", "onnxsim"
TOOLS = (FLOAT32, FLOAT16, ONNXSIM)
_ALLOWED = {FLOAT32: 1e-3, FLOAT16: 2e-2, ONNXSIM: 2e-2}
_HEAD = """# Core ML beside onnxsim

`python -m benchmarks.coreml_peers --onnxsim-python PATH --write` wrote this page; its docstring says what is compared.
Ours counts as right where its own proof let it out and the answers agree besides. {}

"""


@dataclass(frozen=True)
class Outcome:
    """What a tool made of a model."""

    right: bool
    said: str

    def __str__(self) -> str:
        return f"{'' if self.right else '**no**: '}{self.said.replace('|', '/')[:90]}"


def _ours(subject: Subject, package: Path, precision: str) -> Run:
    command = [sys.executable, "-m", "onnxport", "convert", os.fspath(subject.path), "--to", "coreml"]
    command += ["-o", os.fspath(package), "--precision", precision]
    for name, shape in subject.told.items():
        command += ["--shape", f"{name}={','.join(map(str, shape))}"]
    return run_command(command)


def outcome(subject: Subject, tool: str, onnxsim: Onnxsim) -> Outcome:
    """Converts, runs the package on one sample of every kind, and compares."""
    with tempfile.TemporaryDirectory(prefix="peers-") as temp:
        package = Path(temp, "model.mlpackage")
        if tool == ONNXSIM:
            run = onnxsim.convert(subject.path, subject.told, "keep", package)
        else:
            run = _ours(subject, package, "fp32" if tool == FLOAT32 else "fp16")
        if not run.made:
            return Outcome(False, run.said)
        try:
            error = _error(subject, package)
        except (OnnxportError, ValueError) as failure:
            return Outcome(False, str(failure))
    return Outcome(error <= _ALLOWED[tool], f"{error:.0e} of scale, {run.seconds:.1f} s")


def _error(subject: Subject, package: Path) -> float:
    """The largest difference of an output, in shares of its scale."""
    fed = generated(subject.path, subject.shapes)
    with MilRuntime(package) as runtime:
        inputs = {spec.name: [int(dim or 1) for dim in spec.shape] for spec in runtime.inputs}
        dtypes = {spec.name: spec.dtype for spec in runtime.inputs}
        ways = match_inputs({name: array.shape for name, array in fed[0].items()}, inputs)
        way = {name: found[0] for name, found in ways.items()}
        given = []
        for feeds in fed:
            arrays = permuted(feeds, way)
            given.append(runtime.run({name: array.astype(dtypes[name]) for name, array in arrays.items()}))
    return worst_of(match_outputs(reference_answers(subject.path, fed), given)).relative


def _is_real(key: str) -> bool:
    return not key.startswith("light/") and models.path(key).suffix == ".onnx"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--onnxsim-python", type=Path, required=True, metavar="PATH")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("models", nargs="*", default=list(filter(_is_real, models.keys())))
    options = parser.parse_args(arguments)
    try:
        onnxsim = Onnxsim.find(options.onnxsim_python, "coreml")
        subjects = [Subject.of(key) for key in options.models]
    except (PeerMissing, KeyError) as error:
        print(f"error: {error.args[0]}", file=sys.stderr)
        return 2
    found: dict[str, dict[str, Outcome]] = {}
    for subject in subjects:
        found[subject.key] = {tool: outcome(subject, tool, onnxsim) for tool in TOOLS}
        print(f"| {subject.key} | {' | '.join(map(str, found[subject.key].values()))} |", flush=True)
    counts = ", ".join(f"{tool} {sum(each[tool].right for each in found.values())}" for tool in TOOLS)
    said = f"Right of {len(found)}: {counts}. {', '.join(f'{n} {v}' for n, v in onnxsim.versions.items())}."
    print(said)
    if options.write:
        rows = [f"| {key} | {' | '.join(map(str, each.values()))} |" for key, each in found.items()]
        head = [f"| model | {' | '.join(TOOLS)} |", "|---|---|---|---|"]
        PAGE.write_text(_HEAD.format(said) + "\n".join(head + rows) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

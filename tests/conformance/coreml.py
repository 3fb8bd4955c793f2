"""ONNX's own node tests through our Core ML route and the evaluator (see harness.py).

    python -m tests.conformance.coreml [--write] [--bound] [--fp16] [PART OF A NAME]...

`--write` renews the list of what is right, which the tests hold us to. Core ML's own runtime is macOS's: here the saved
package is evaluated as Apple's documentation has it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from onnxport.converters.lowering import qualified_op
from onnxport.converters.params import CoremlParams
from onnxport.converters.result import Compiled
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
from tests.conformance.harness import MANIFEST, Array, Harness, run_cases

# The cases that come out right, with all inputs at run time and with all but the first one bound.
RIGHT_LISTS = {
    bound: Path(__file__).with_name(name)
    for bound, name in ((False, "coreml_right.txt"), (True, "coreml_right_bound.txt"))
}


class Prover:
    """The child's side: our converter's worker, and an evaluator for what it made."""

    def __init__(self) -> None:
        from onnxport.converters.coreml.worker import Worker

        worker = Worker()
        self.native, self.lower, self.write = worker.native_ops, worker.lower, worker.write

    def run(self, artefact: Path, feeds: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
        """The artefact's answers to each of `feeds`, in the source's dtypes."""
        from onnxport.runtimes.mlprogram import MilRuntime

        with MilRuntime(artefact) as runtime:
            return [runtime.run(feed) for feed in feeds]


class CoremlConformance(Harness):
    """The Core ML route."""

    prover = "tests.conformance.coreml:Prover"
    params = CoremlParams()

    def convert_and_run(self, model: Model, feeds: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
        output = Path(self._folder.name, "model.mlpackage")
        self.convert(model, output)
        answers: list[dict[str, Array]] = self._call("run", output, list(feeds))
        return answers

    def convert(self, model: Model, output: Path) -> dict[str, int]:
        """Prepares and converts `model`; returns the operators of the program, counted by name."""
        self._running()
        prepared = prepare(model, shapes={}, native=lambda: self._native, unrolls=True).model
        self.operators = frozenset(map(qualified_op, prepared.graph.all_nodes()))
        handed_over = Path(self._folder.name, "model.onnx")
        prepared.save(handed_over)
        shutil.rmtree(output, ignore_errors=True)
        self._call("lower", handed_over, self.params, MANIFEST)
        compiled: Compiled = self._call("write", output, self.params)
        return dict(compiled.operators)


if __name__ == "__main__":
    harness = CoremlConformance()
    if "--fp16" in sys.argv:
        harness.params = CoremlParams(precision="fp16")
    run_cases(harness, RIGHT_LISTS, sys.argv[1:])

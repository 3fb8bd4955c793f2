"""ONNX's own node tests through our TFLite route (see harness.py).

    python -m tests.conformance.tflite [--write] [--bound] [PART OF A NAME]...

`--write` renews the list of what is right, which the tests hold us to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onnxport.converters.lowering import qualified_op
from onnxport.converters.params import Layout, TfliteParams
from onnxport.converters.result import Compiled
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
from tests.conformance.harness import (
    COLLECTIONS,
    MANIFEST,
    Array,
    Harness,
    Outcome,
    cases,
    difference,
    run_cases,
)

__all__ = ["COLLECTIONS", "MANIFEST", "RIGHT_LISTS", "Array", "Conformance", "Outcome", "cases", "difference"]

# The cases that come out right, with all inputs at run time and with all but the first one bound.
RIGHT_LISTS = {
    bound: Path(__file__).with_name(name)
    for bound, name in ((False, "tflite_right.txt"), (True, "tflite_right_bound.txt"))
}


class Prover:
    """The child's side: our compiler's worker, and an interpreter for what it made."""

    def __init__(self) -> None:
        from onnxport.converters.tflite.worker import Worker

        worker = Worker()
        self.compile = worker.compile

    def native(self) -> frozenset[str]:
        from onnxport.converters.tflite.registry import REGISTRY

        return REGISTRY.ops

    def run(self, artefact: Path, feeds: Sequence[dict[str, Array]]) -> list[dict[str, Array]]:
        """The artefact's answers to each of `feeds`, in the source's layout, dtypes as the interpreter has them."""
        from onnxport.runtimes.litert import TfliteRuntime

        with TfliteRuntime(artefact) as runtime:
            orders = runtime.permutations
            answers = [
                runtime.run({name: x.transpose(orders.get(name, range(x.ndim))) for name, x in feed.items()})
                for feed in feeds
            ]
            details = runtime._interpreter.get_output_details()
        for answer in answers:
            for (name, value), detail in zip(answer.items(), details, strict=True):
                # TfliteRuntime.run restores the source's dtype.
                order = orders.get(name, range(value.ndim))
                answer[name] = value.astype(detail["dtype"]).transpose(np.argsort(order))
        return answers


class Conformance(Harness):
    """The TFLite route."""

    prover = "tests.conformance.tflite:Prover"
    params = TfliteParams()

    def convert_and_run(
        self, model: Model, feeds: Sequence[dict[str, Array]], layout: Layout = "keep"
    ) -> list[dict[str, Array]]:
        """The artefact's answers to each of `feeds`.

        Raises:
            CannotConvertError, MachineError, ChildBug: see TfliteConverter.convert.
        """
        output = Path(self._folder.name, "model.tflite")
        self.convert(model, output, layout)
        answers: list[dict[str, Array]] = self._call("run", output, list(feeds))
        return answers

    def convert(self, model: Model, output: Path, layout: Layout = "keep") -> dict[str, int]:
        """Prepares and compiles `model`; returns the operators of the file, counted by name."""
        self._running()
        prepared = prepare(model, shapes={}, native=lambda: self._native).model
        self.operators = frozenset(map(qualified_op, prepared.graph.all_nodes()))
        handed_over = Path(self._folder.name, "model.onnx")
        prepared.save(handed_over)
        params = self.params.model_copy(update={"layout": layout})
        compiled: Compiled = self._call("compile", handed_over, output, params, MANIFEST)
        return dict(compiled.operators)


if __name__ == "__main__":
    run_cases(Conformance(), RIGHT_LISTS, sys.argv[1:])

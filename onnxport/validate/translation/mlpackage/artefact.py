"""An `.mlpackage` as what a proof compares: its graph in ONNX's operators, and its arithmetic in our evaluator.

Core ML runs on macOS only, so what its own kernels do is not checked here: the evaluator computes as Apple documents
the operators. It runs the whole program, and each grid's integers are computed again from those that it read. Where
both differ, the operators are not understood here, which is a doubt and no fault of the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.formats.mlpackage.program import Function, Package
from onnxport.formats.mlpackage.reader import read_package
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import QuantizationNote, quantization_key
from onnxport.runtimes.base import RunError
from onnxport.runtimes.mlprogram.evaluator import Evaluator
from onnxport.runtimes.mlprogram.kernels.registry import Failed, Undefined
from onnxport.runtimes.mlprogram.ports import (
    Signature,
    from_program,
    function_name,
    image_inputs,
    input_types,
    signature,
    state_names,
    to_program,
)
from onnxport.validate.translation.arithmetic import ANSWER, PLAIN, Arithmetic, ArithmeticCheck, OrtPieces
from onnxport.validate.translation.findings import Finding
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.matches import Matching, match_graphs
from onnxport.validate.translation.mlpackage import operators
from onnxport.validate.translation.mlpackage.lift import Lifted, Lifting
from onnxport.validate.translation.proof import Proof, compare_at_sizes


class MilArtefact:
    """The default function of an `.mlpackage` at the sizes of one set of inputs.

    Args:
        feeds: that set.

    Raises:
        InputError: no package, a damaged one, or one that takes images or keeps a state.
    """

    def __init__(self, path: Path, feeds: Feeds) -> None:
        package, name = _read(path)
        self._function, self._ends = package.functions[name], signature(package, path, name)
        self._lifted = _lift(self._function, self._ends, feeds)
        self._fed = _sizes(feeds)
        self.graph = Graph(self._lifted.model, self._fed)
        self.parts: Sequence[object] = ()
        declared = package.description.metadata.userDefined
        self.note = QuantizationNote.from_json(declared.get(quantization_key(name)))

    @property
    def lifted(self) -> Model:
        """The program in ONNX's operators, before its normal form."""
        return self._lifted.model

    @property
    def operators(self) -> Mapping[str, str]:
        """The operation that gives each value, as "conv 'relu1'", by the value's name."""
        return self._lifted.labels

    def match(self, source: Model, rounding: str) -> tuple[Graph, Matching]:
        """See Artefact."""
        original = Graph(source, self._fed, rounding)
        return original, match_graphs(self.graph, original)

    def has(self, name: str) -> bool:
        """See Artefact: the program cannot be cut at floats."""
        return False

    def check_views(self, matching: Matching, original: Graph, feeds: Feeds) -> Iterator[Finding]:
        """Yield operators that are not known here."""
        for name, why in self._lifted.unknown.items():
            yield Finding(self._lifted.labels.get(name, name), why, "doubt")
        for core, _ in matching.views:
            yield Finding(core.label, "its sizes are not known before it runs", "doubt")

    def check_arithmetic(self, sets: Sequence[tuple[Feeds, dict[str, Array]]]) -> Arithmetic:
        """See Artefact: on the integers that the program itself has."""
        if self._lifted.unknown:
            return Arithmetic()
        side = _Evaluated(self._function, self._ends, self._lifted.grids)
        given = [(feeds, side.values(feeds)) for feeds, _ in sets]
        with OrtPieces(self._lifted.model, given[0][1], is_exact=True) as exact:
            found = ArithmeticCheck(side, exact, self._lifted.labels, floats=PLAIN).run(given)
        found.findings = tuple(replace(each, kind="doubt") for each in found.findings)
        return found


class _Evaluated:
    """The evaluator, which gives outputs and the integers of grids.

    Args:
        grids: names of these integers, with their types: the program may hold them in wider ones.
    """

    def __init__(self, function: Function, ends: Signature, grids: Mapping[str, np.dtype[Any]]) -> None:
        self._evaluator, self._ends, self._grids = Evaluator(function), ends, grids
        self._types, self._answers = input_types(function), deque[dict[str, Array]]()
        self.names = frozenset(port.name for port in ends.inputs)

    def values(self, feeds: Feeds) -> dict[str, Array]:
        """Return the integers of every grid, and keep all answers for `run`, which is asked in the same order."""
        inputs = {
            port.key: to_program(feeds[port.name], self._types[port.key], port) for port in self._ends.inputs
        }
        try:
            found = self._evaluator.run(inputs, keep=list(self._grids))
        except (Undefined, Failed) as error:
            raise RunError("the program cannot be evaluated", why=str(error)) from error
        codes = {name: np.asarray(found[name]).astype(dtype) for name, dtype in self._grids.items()}
        answers = {port.name: from_program(found[port.key], port) for port in self._ends.outputs}
        self._answers.append(answers | {name + ANSWER: array for name, array in codes.items()})
        return codes

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """See Side."""
        return self._answers.popleft()


def lift_function(path: Path, feeds: Feeds, *, rounds: bool = True) -> Lifted:
    """Write the default function of an `.mlpackage` as an ONNX model, at the sizes of a set of inputs.

    Args:
        rounds: see Lifting.

    Raises:
        InputError: no package, a damaged one, or one that takes images or keeps a state.
    """
    package, name = _read(path)
    return _lift(package.functions[name], signature(package, path, name), feeds, rounds=rounds)


def _read(path: Path) -> tuple[Package, str]:
    """Return a package and the name of its default function."""
    package = read_package(path)
    name = function_name(package, path, "")
    if image_inputs(package, path, name) or state_names(package.functions[name]):
        raise InputError("packages that take images or keep a state are not compared")
    return package, name


def _lift(function: Function, ends: Signature, feeds: Feeds, *, rounds: bool = True) -> Lifted:
    return Lifting(function, ends.inputs, ends.outputs, rounds=rounds).run(operators.OPERATORS, _sizes(feeds))


def _sizes(feeds: Feeds) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in feeds.items()}


def prove_mlpackage(
    source: Model,
    path: Path,
    sets: Sequence[Feeds],
    *,
    are_samples: bool = True,
    rounding: str = "",
) -> Proof:
    """Compare an `.mlpackage` with the float ONNX model that it was made of, at the sizes of the first set.

    Args:
        sets: inputs to check grids and arithmetic on; those of other sizes are left out.
        are_samples, rounding: see `prove`.

    Raises:
        InputError: the package is damaged.
        RunError: the evaluator cannot run it.
    """
    opened = partial(MilArtefact, path)
    return compare_at_sizes(source, opened, sets, sets[0], are_samples=are_samples, rounding=rounding)

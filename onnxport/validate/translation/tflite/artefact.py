"""A `.tflite` file as what a proof compares: its graph in ONNX's operators, and its arithmetic in LiteRT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx_ir.passes import common

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.manifest import Port
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import NOTE_KEY, QuantizationNote
from onnxport.formats.tflite.ports import manifest_text, read_signature
from onnxport.validate.translation.arithmetic import ALIKE, PLAIN, Arithmetic, ArithmeticCheck, OrtPieces
from onnxport.validate.translation.findings import Finding
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.layouts.views import in_order
from onnxport.validate.translation.matches import Matching, match_graphs
from onnxport.validate.translation.old_opsets import without_old_operators
from onnxport.validate.translation.proof import Proof, compare_at_sizes
from onnxport.validate.translation.tflite import operators
from onnxport.validate.translation.tflite.contents import read_stored
from onnxport.validate.translation.tflite.hybrid import with_run_time_rounding
from onnxport.validate.translation.tflite.landmarks import Landmark, find_landmarks
from onnxport.validate.translation.tflite.lift import DOMAIN, Lifting
from onnxport.validate.translation.tflite.pieces import TflitePieces, at_sizes, tensor_values
from onnxport.validate.translation.tflite.stand_ins import Part, call_in_file, call_in_source, cut_out, places

# Of the range: LiteRT's kernels of HARD_SWISH, SOFTMAX and the like compute in fixed point of few bits.
_COARSE = 1 / 16


class TfliteArtefact:
    """A `.tflite` file at the sizes of one set of inputs.

    Args:
        feeds: that set.

    Raises:
        InputError: no `.tflite` file, or a damaged one.
        RunError: LiteRT cannot run it.
    """

    def __init__(self, path: Path, feeds: Feeds) -> None:
        self._ends = read_signature(path)
        self._stored, shapes = at_sizes(read_stored(path), self._ends, feeds)
        self._lifted = Lifting(self._stored, self._ends, shapes).run(operators.OPERATORS)
        self._feeds, self._sizes = feeds, {name: array.shape for name, array in feeds.items()}
        self.graph = Graph(self._lifted.model, self._sizes)
        self.parts: list[Part] = []
        self._tensors = {each.key: each for each in self._stored.tensors}
        self._shapes, self.note = shapes, self._declared()

    def _declared(self) -> QuantizationNote | None:
        """Return what the file declares, ranges by the tensors of their values."""
        model = schema.Model.GetRootAs(self._stored.content, 0)
        note = QuantizationNote.from_json(manifest_text(model, self._stored.content, NOTE_KEY))
        if note is None:
            return None
        ranges = {
            each.key: note.ranges[each.name] for each in self._stored.tensors if each.name in note.ranges
        }
        return QuantizationNote(ranges, note.means, note.factors)

    @property
    def lifted(self) -> Model:
        """The file in ONNX's operators, before its normal form."""
        return self._lifted.model

    @property
    def unknown(self) -> Mapping[str, str]:
        """Results of operators that ONNX has not, with the reason."""
        return self._lifted.unknown

    @property
    def operators(self) -> dict[str, str]:
        """The operator that gives each tensor, as "CONV_2D 'relu1'", by the tensor's name."""
        tensors = self._stored.tensors
        return {
            tensors[index].name: f"{operator.op} {tensors[index].name!r}"
            for operator in self._stored.operators
            for index in operator.outputs
            if index >= 0
        }

    def match(self, source: Model, rounding: str) -> tuple[Graph, Matching]:
        """See Artefact. Parts of another form are compared by their answers (stand_ins.py)."""
        original = Graph(source, self._sizes, rounding)
        found = match_graphs(self.graph, original)
        # Between floats of 16 bits nothing is measured that could tell them.
        if rounding or not any(each.is_structure for each in found.mismatches):
            return original, found
        source = without_old_operators(source)
        values = tensor_values(self._stored, self._shapes, self._ends, self._feeds)
        landmarks = find_landmarks(self._stored.tensors, values, source, self._feeds)
        known = {each.tensor.key: each for each in landmarks.values()}
        tried: set[str] = set()
        while True:
            apart = [each.pair for each in found.mismatches if each.is_structure]
            wanted = {key for pair in apart for key in places(pair, known)} - tried
            made = [key for key in sorted(wanted) if self._stand_in(known[key], landmarks, source)]
            if not made:
                return original, found
            tried |= wanted
            self.graph = Graph(self._lifted.model, self._sizes)
            original = Graph(call_in_source(source, self.parts), self._sizes)
            found = match_graphs(self.graph, original)

    def _stand_in(self, landmark: Landmark, landmarks: Mapping[int, Landmark], source: Model) -> bool:
        """Let the source's nodes stand for what computes a landmark."""
        left = {value.name for node in self._lifted.model.graph for value in node.outputs}
        before = {
            landmarks[index].name: landmarks[index]
            for index in self._read_by(landmark.tensor.index)
            if index in landmarks and landmarks[index].tensor.key in left
        }
        part = cut_out(source, landmark, before.values(), f"Part{len(self.parts) + 1}")
        if part is None or not call_in_file(self._lifted.model, part, before):
            return False
        common.RemoveUnusedNodesPass()(self._lifted.model.ir)
        nodes = [each for each in self._lifted.model.graph if each.domain == DOMAIN]
        unknown = {value.name for node in nodes for value in node.outputs}
        for key in [each for each in self._lifted.unknown if each not in unknown]:
            del self._lifted.unknown[key]
        self.parts.append(part)
        return True

    def _read_by(self, index: int) -> list[int]:
        """Return the tensors that a tensor is computed from, in the file's order."""
        found, order = {index}, []
        for operator in reversed(self._stored.operators):
            if found.intersection(operator.outputs):
                order += [each for each in operator.outputs if each in found]
                found.update(operator.inputs)
        return [each for each in reversed(order) if each != index]

    def has(self, name: str) -> bool:
        """See Artefact."""
        return name in self._tensors and name in self.graph.layouts

    def check_views(self, matching: Matching, original: Graph, feeds: Feeds) -> Iterator[Finding]:
        """Yield operators that are not known here."""
        for key, why in self._lifted.unknown.items():
            yield Finding(self._tensors[key].name, why, "doubt")
        for core, _ in matching.views:
            yield Finding(core.label, "its sizes are not known before it runs", "doubt")

    def check_arithmetic(self, sets: Sequence[tuple[Feeds, dict[str, Array]]]) -> Arithmetic:
        """See Artefact."""
        if self._lifted.unknown:
            return Arithmetic()
        moved = [(feeds, self._as_stored(codes)) for feeds, codes in sets]
        names = moved[0][1]
        if other := [name for name in sets[0][1] if name in self._tensors and name not in names]:
            shapes = {name: self._shapes[self._tensors[name].index] for name in other}
            return Arithmetic(
                findings=tuple(
                    Finding(
                        self._labels()[name],
                        f"its shape is {shape}, not that of the source's values",
                        "fault",
                    )
                    for name, shape in shapes.items()
                )
            )
        cuts = {name: self._tensors[name].index for name in names}
        with (
            TflitePieces(self._stored, self._ends, cuts) as ours,
            OrtPieces(with_run_time_rounding(self._lifted.model), names, is_exact=True) as exact,
        ):
            return ArithmeticCheck(
                ours, exact, self._labels(), floats=ALIKE if self._is_hybrid else PLAIN, coarse=_COARSE
            ).run(moved)

    @property
    def _is_hybrid(self) -> bool:
        """Whether an operator multiplies floats with stored integers: it rounds the floats at run time."""
        return any(
            self._stored.tensors[operator.outputs[0]].dtype == "float32"
            and operator.op != "DEQUANTIZE"
            and any(self._stored.tensors[each].grid is not None for each in operator.inputs if each >= 0)
            for operator in self._stored.operators
            if operator.outputs
        )

    def _labels(self) -> dict[str, str]:
        return {
            self._stored.tensors[index].key: f"{operator.op} {self._stored.tensors[index].name!r}"
            for operator in self._stored.operators
            for index in operator.outputs
            if index >= 0
        }

    def _as_stored(self, codes: dict[str, Array]) -> dict[str, Array]:
        """Return values in the order of axes that the file has, without those that have other sizes there."""
        found = {}
        for name, array in codes.items():
            if name not in self._tensors:
                continue
            sizes, axes = self.graph.layouts.get(name, (array.shape, tuple(range(array.ndim))))
            shape = self._shapes[self._tensors[name].index]
            if prod(sizes) == array.size == prod(shape):
                found[name] = in_order(array.reshape(sizes), axes).reshape(shape)
        return found


def prove_tflite(
    source: Model,
    path: Path,
    sets: Sequence[Feeds],
    *,
    are_samples: bool = True,
    rounding: str = "",
) -> Proof:
    """Compare a `.tflite` file with the float ONNX model that it was made of, at the sizes of one set.

    Args:
        sets: inputs to check grids and arithmetic on; the first of the sizes that the file declares, and those alike.
        are_samples, rounding: see `prove`.

    Raises:
        InputError: the file is damaged, or LiteRT cannot load it.
        RunError: LiteRT cannot run it.
    """
    first = fitting_set(path, sets)
    opened = partial(TfliteArtefact, path)
    return compare_at_sizes(source, opened, sets, first, are_samples=are_samples, rounding=rounding)


def fitting_set(path: Path, sets: Sequence[Feeds]) -> Feeds:
    """Return the first set of the sizes that a `.tflite` file declares; the first of all if none fits."""
    declared = {port.name: _source_shape(port) for port, _ in read_signature(path).inputs}
    return next((each for each in sets if _fits(each, declared)), sets[0])


def _source_shape(port: Port) -> tuple[int | None, ...]:
    """Return an input's sizes with the source's axes."""
    order = np.argsort(port.permutation) if port.permutation else range(len(port.shape))
    return tuple(port.shape[each] for each in order)


def _fits(feeds: Feeds, declared: Mapping[str, tuple[int | None, ...]]) -> bool:
    return all(
        len(shape) == feeds[name].ndim
        and all(ours in (None, size) for ours, size in zip(shape, feeds[name].shape, strict=True))
        for name, shape in declared.items()
        if name in feeds
    )

"""Check whether rounding explains the loss of a lower precision at each single node; a fault loses more.

At the outputs a fault does not stand out, since every layer adds to the loss. At one node it does: the reference's node
runs on the candidate's own values, so only the node's own error remains:

    error(v) = candidate's v - reference's node on the candidate's inputs to it

The limit is measured: the same node with every weight, float input and its result moved at random by up to half a step
of the precision. Steps are those of the plainest quantizer: min-max ranges, one scale for a whole 8-bit weight. Right
files of ours stay below 2.5 times that; most faults that cost 1 dB or more at the outputs lie at 5 to 350 times
(docs/internals/faults-lowered.md).

A converter may change the meaning of a value and keep its name: scaled channels, an activation folded into a range. A
value beyond the limit is therefore checked again without it, from the values before it to those behind. If these are
right, it is no fault.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError, OnnxportError
from onnxport.formats.artifact import Artifact
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.debug.graph import Network, Part
from onnxport.validate.debug.local_error import Replay
from onnxport.validate.debug.search import choose, in_order
from onnxport.validate.debug.taps import PLAIN, Sides
from onnxport.validate.params import ValidateParams
from onnxport.validate.reference import Reference
from onnxport.validate.report import AUDITED, Judgement, NodeRef, Precision

# Times the node's rounding. Errors of few elements vary more.
_MOST, _MOST_OF_FEW, _FEW = 3.0, 6.0, 64
_PRODUCTS = frozenset("Conv ConvTranspose Gemm MatMul Einsum LSTM GRU RNN".split())
_PROPORTIONAL = 0.7  # correlation
_FLOAT_NOISE = 1e-6  # of the scale
# Bytes of values to check in one set.
_ROOM = 512 * 2**20
_SEED = 1

_UNCHECKED = (
    "only the outputs were checked: the loss there is measured, but whether rounding explains it is not known"
)


@dataclass(frozen=True)
class Steps:
    """The roundings of a precision.

    Attributes:
        weights: bits.
        by_channel: whether weights have a step for every channel; else one for the whole tensor.
        inputs: whether float inputs of a node are rounded to 8 bits.
        results: bits of a node's result; 0 for no rounding.
    """

    weights: int = 8
    by_channel: bool = False
    inputs: bool = False
    results: int = 0


STEPS: Mapping[Precision, Steps] = {
    "int8": Steps(inputs=True, results=8),
    "int16x8": Steps(results=16),
    "int8 dynamic": Steps(inputs=True),
    "int8 weights": Steps(),
    "int4 weights": Steps(weights=4, by_channel=True),
}
# Their ranges were chosen on samples: generated inputs beyond these prove nothing.
_OF_SAMPLES = frozenset[Precision](("int8", "int16x8"))


@dataclass(frozen=True)
class Unexplained:
    """A node whose error its rounding does not explain.

    Attributes:
        times: its root mean square error as a multiple of the rounding's.
        own, expected: SQNR in dB of the node alone, and of its rounding.
    """

    node: NodeRef
    times: float
    own: float
    expected: float

    def __str__(self) -> str:
        name = self.node.name or self.node.value
        return (
            f"{self.node.op} {name!r} alone has an SQNR of {self.own:.1f} dB "
            f"where rounding explains {self.expected:.1f} dB: a fault"
        )


def check_nodes(
    reference: Reference, candidate: Artifact, params: ValidateParams, precision: Precision
) -> tuple[Judgement | None, str]:
    """Look for a node whose error its rounding does not explain.

    Returns:
        The judgement on such a node, None for none; and a note on how far nodes were checked.
    """
    audit = _audit(reference, candidate, params, precision)
    if audit is None:
        return None, _UNCHECKED
    examined, worst = audit
    if worst is None:
        return None, f"rounding explains the loss at each of {examined} values that both models show"
    return Judgement(question="fidelity", verdict="not equivalent", reason=str(worst), against=AUDITED), ""


def _audit(
    reference: Reference, candidate: Artifact, params: ValidateParams, precision: Precision
) -> tuple[int, Unexplained | None] | None:
    """Return how many values both sides show, and the worst unexplained error; None where nodes cannot be checked."""
    steps, graph = STEPS.get(precision), reference.graph
    sets = [each for each in reference.sets if each.is_usual]
    if precision in _OF_SAMPLES:
        sets = [each for each in sets if each.source == "samples"]
    if steps is None or graph is None or not sets or reference.steps > 1:
        return None
    if precision in _OF_SAMPLES and _may_clip_inside(candidate):
        return None
    try:
        with Sides(Network(graph), candidate, params, reference, unread=reference.unread) as sides:
            if not sides.has_taps:
                return None
            check = _NodeCheck(sides, steps, reference, sets[0])
            worst = max(check.unexplained(), key=lambda each: each.times, default=None)
            return len(check.given), worst
    except OnnxportError:  # no intermediate values: the verdict on the outputs stands
        return None


def _may_clip_inside(candidate: Artifact) -> bool:
    """Return whether operators may clip operands unseen: the file shows the float value before a QuantizeLinear, while
    QLinear operators take its integers."""
    if candidate.format not in ("onnx", "ort"):
        return False
    data = candidate.path.read_bytes()
    return any(name in data for name in (b"QLinear", b"QGemm"))


class _NodeCheck:
    """The check of all nodes on one set of inputs."""

    def __init__(self, sides: Sides, steps: Steps, reference: Reference, answered: AnsweredSet) -> None:
        self._sides, self._steps = sides, steps
        self._network = sides.network
        self._feeds, _ = reference.answers(answered)
        sizes = sides.sizes(self._feeds)
        outputs = [name for name in self._network.outputs if name in sides.shared]
        inner = [name for name in sides.shared if name not in outputs]
        chosen = choose(inner, sizes, _ROOM - sum(sizes[name] for name in outputs))
        self._shown = sides.fetch(self._feeds, in_order(self._network, {*chosen, *outputs}))
        # Not codes under a float value's name.
        self.given = [
            name
            for name in in_order(self._network, set(self._shown.candidate))
            if sides.dtypes[name] == self._shown.reference[name].dtype
        ]
        self._sizes = sizes

    def unexplained(self) -> Iterator[Unexplained]:
        """Yield the nodes whose error rounding does not explain, with and without the values themselves."""
        suspects = {each.node.value: each for each in self._beyond(self.given, self.given)}
        outputs = set(self._network.outputs)
        kept = [name for name in self.given if name not in suspects.keys() - outputs]
        within = {name: self._within(name, suspects, kept) for name in kept}
        for found in self._beyond([name for name in kept if within[name]], kept):
            yield suspects[within[found.node.value][0]]

    def _within(self, name: str, suspects: Collection[str], given: Sequence[str]) -> list[str]:
        """Return the suspects through which `name` is computed, in order."""
        nodes = self._network.between(name, frozenset(given))
        return [value for index in nodes for value in self._network.nodes[index].output if value in suspects]

    def _beyond(self, targets: Sequence[str], given: Sequence[str]) -> Iterator[Unexplained]:
        replay = Replay(self._network, given, self._sizes)
        for name in targets:
            try:
                found = self._error(name, replay, frozenset(given))
            except (InputError, RunError):
                continue  # a node that does not run alone is covered by those behind it
            if found is not None:
                yield found

    def _error(self, name: str, replay: Replay, given: frozenset[str]) -> Unexplained | None:
        value = self._shown.candidate[name]
        if value.dtype != np.float32 or not value.size:
            return None
        part = replay.part([name], self._shown.candidate)
        inputs = {
            each: self._shown.candidate[each] if each in given else self._feeds[each] for each in part.inputs
        }
        exact, moved = self._replay(part, inputs, name)
        if exact.shape != value.shape or not all(np.isfinite(each).all() for each in (exact, moved, value)):
            return None
        error = _unclipped_squares(exact, value) if self._steps.results else _squares(value - exact)
        nodes = [self._network.nodes[index] for index in self._network.between(name, given)]
        count = sum(node.op_type != "Constant" for node in nodes)
        rounding = float(_squares(moved - exact).mean()) + count * self._result_rounding(exact)
        times = math.sqrt(float(error.mean()) / rounding) if rounding else 0.0
        most = (_MOST if value.size >= _FEW else _MOST_OF_FEW) * self._product_factor(nodes)
        if times <= (most / 2 if _is_proportional(exact, value) else most):
            return None
        signal = float(_squares(exact).mean())
        own, expected = (_decibels(signal, each) for each in (float(error.mean()), rounding))
        return Unexplained(self._network.ref(name), times, own, expected)

    def _product_factor(self, nodes: Sequence[onnx.NodeProto]) -> float:
        """Return how much more rounding may cost in a part with several products than at one node.

        The roundings between them do not show, and the next product multiplies them.
        """
        products = sum(node.op_type in _PRODUCTS for node in nodes)
        if not (self._steps.inputs or self._steps.results):
            return 1.0  # weights alone are rounded, and all of them were moved
        return max(1.0, float(products)) ** 2

    def _result_rounding(self, exact: Array) -> float:
        """Return the mean square error of rounding the result, at least float32's."""
        noise = (_FLOAT_NOISE * float(np.abs(exact).max())) ** 2
        if not self._steps.results:
            return noise
        step = _step(exact, 2**self._steps.results - 1)
        return float(max(step * step / 12, noise))

    def _replay(self, part: Part, inputs: Feeds, name: str) -> tuple[Array, Array]:
        """Return the value from the reference's nodes, and with weights and inputs moved by up to half a step."""
        folder, key = self._network.folder, part.answers[name]
        with OrtRuntime(part.proto.SerializeToString(), PLAIN, folder=folder) as runtime:
            exact = runtime.run(inputs)[key]
        random = np.random.default_rng(_SEED)
        moved = _move_weights(part.proto, self._steps, random, self._network)
        fed = {
            each: _move(array, _step(array, 255), random)
            if self._steps.inputs and array.dtype == np.float32
            else array
            for each, array in inputs.items()
        }
        with OrtRuntime(moved.SerializeToString(), PLAIN, folder=folder) as runtime:
            return exact.astype(np.float64), runtime.run(fed)[key].astype(np.float64)


def _move_weights(
    proto: onnx.ModelProto, steps: Steps, random: np.random.Generator, network: Network
) -> onnx.ModelProto:
    """Copy a part with its weights moved."""
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    if network.folder is not None:
        onnx.load_external_data_for_model(copy, str(network.folder))
    constants = [
        each.t
        for node in copy.graph.node
        if node.op_type == "Constant"
        for each in node.attribute
        if each.name == "value"
    ]
    for tensor in (*copy.graph.initializer, *constants):
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1:
            values = numpy_helper.to_array(tensor)
            moved = _move(values, _weight_steps(values, steps), random)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    return copy


def _weight_steps(values: Array, steps: Steps) -> Array:
    """Return the step of each weight: of the whole tensor, or of a row or column along its first two axes."""
    levels = 2 ** (steps.weights - 1) - 1
    magnitudes = np.abs(values)
    if not steps.by_channel:
        return np.asarray(magnitudes.max(initial=0.0) / levels)
    rows, columns = (
        magnitudes.max(axis=tuple(i for i in range(values.ndim) if i != axis), keepdims=True, initial=0.0)
        for axis in (0, 1)
    )
    return np.asarray(np.minimum(rows, columns) / levels)


def _move(values: Array, step: Array | float, random: np.random.Generator) -> Array:
    return np.asarray((values + step * random.uniform(-0.5, 0.5, values.shape)).astype(np.float32))


def _step(values: Array, levels: int) -> float:
    """Return the step of a min-max range that contains 0."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0
    return (max(float(finite.max()), 0.0) - min(float(finite.min()), 0.0)) / levels


def _unclipped_squares(exact: Array, given: Array) -> Array:
    """Return squared errors; 0 where the candidate is at an end of its range and the right value lies beyond."""
    clipped = ((given >= given.max()) & (exact > given)) | ((given <= given.min()) & (exact < given))
    return np.where(clipped, 0.0, _squares(given - exact))


def _is_proportional(exact: Array, given: Array) -> bool:
    """Return whether the error correlates with the result, as a wrong scale's does and rounding's does not."""
    error, signal = (values.ravel() - values.mean() for values in (given - exact, exact))
    lengths = math.sqrt(float(error @ error)) * math.sqrt(float(signal @ signal))
    return bool(lengths) and abs(float(error @ signal)) > _PROPORTIONAL * lengths


def _squares(values: Array) -> Array:
    return np.square(values, dtype=np.float64)


def _decibels(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if signal and noise else 0.0

"""Probes: runs of the reference that differ from its answer by rounding alone, and so show its noise."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.runtimes.base import MemoryFullError, RunError
from onnxport.samples.sizes import OpenSizes
from onnxport.validate.metrics import scale_of
from onnxport.validate.report import Precision
from onnxport.validate.tolerance import CONCLUSIVE_NOISE, Noise, group_scales

Answers = dict[str, Array]
Run = Callable[[Feeds], Answers]
# From inputs and the reference's answers to them to the other answers.
Probe = Callable[[Feeds, Answers], Answers]
# Moves an array's numbers by what rounding explains.
Move = Callable[[Array, np.random.PCG64], Array]

# Larger models are not copied to perturb their weights.
MOST_WEIGHTS = 512 * 2**20
# Share of the scale. A row that changes more than this with its batch: the model mixes rows, it is no rounding.
_MIXED = 1e-3
# Times the usual noise. On zeros Silero's state differed between LiteRT and ONNX Runtime by 10 times the usual noise of
# the reference, on ordinary sets by 1.5: companions look for gross faults, a wide tolerance is enough.
MARGIN = 4.0
# Times its floor, by which the last bits of a Sigmoid differ.
_FLOORS = 2.0
# float32 holds whole numbers below this.
_WHOLE = 2**24
# The largest number of runs that the rows of a batch are divided into.
_PARTS = 16


def perturb_inputs(
    run: Run, seed: int, precision: Precision = "float32", exact: Collection[str] = ()
) -> Probe:
    """Make a probe that moves every other float32 of the inputs to a neighbour, a relative change of 1e-7.

    float64 moves as far, since artefacts compute in float32; float16 stays, whose neighbours are 1e-3 away. For a
    reference of lower precision the inputs move by that precision's steps (MOVES).

    Args:
        exact: inputs that stay: numbers that are compared with thresholds as they come are on the same side in every
            right artefact.
    """
    move = MOVES.get(precision, _move_float32)

    def probe(feeds: Feeds, answers: Answers) -> Answers:
        return run(
            {
                name: array
                if name in exact
                else move(array, np.random.PCG64([seed, zlib.crc32(name.encode())]))
                for name, array in feeds.items()
            }
        )

    return probe


def perturb_zeros(run: Run, exact: Collection[str] = ()) -> Probe:
    """Make a probe that moves the zeros among other numbers up or down by the rounding of the largest number.

    A zero has no neighbour, and yet every sum that it goes into rounds: between sparse inputs a spectrum consists of
    these roundings. For `exact` see `perturb_inputs`.
    """

    def probe(feeds: Feeds, answers: Answers) -> Answers:
        moved = {name: array if name in exact else _move_zeros(array) for name, array in feeds.items()}
        if all(moved[name] is array for name, array in feeds.items()):
            return answers
        try:
            return run(moved)
        except (RunError, MemoryFullError):
            return answers

    return probe


def _move_zeros(array: Array) -> Array:
    """Return the array itself where there is nothing to move, or nothing to move it by."""
    if array.dtype != np.float32 or not array.any() or array.all():
        return array
    random = np.random.Generator(np.random.PCG64(array.size))
    step = np.float32(np.finfo(np.float32).eps * np.abs(array).max())
    return np.where(array == 0, step * random.choice(np.array([-1, 1], np.float32), array.shape), array)


def other_batch(run: Run, inputs: tuple[TensorSpec, ...]) -> Probe | None:
    """Make a probe that runs rows of a batch in other batches: several rows each alone, a single row twice.

    Kernels sum in another order then. Models with a fixed batch have no such probe, and models that mix the rows of a
    batch no difference.
    """
    axes = OpenSizes(inputs, {spec.name: spec.shape for spec in inputs}).batch_axes
    if not axes:
        return None

    def run_rows(feeds: Feeds, rows: list[int]) -> Answers:
        return run(
            {name: array.take(rows, axes[name]) if name in axes else array for name, array in feeds.items()}
        )

    def probe(feeds: Feeds, answers: Answers) -> Answers:
        batches = {feeds[name].shape[axis] for name, axis in axes.items()}
        # Axes of several sizes are no batch of rows, though they look like one: time steps, and their state.
        if len(batches) > 1 or not (batch := batches.pop()):
            return answers
        groups = _row_groups(batch)
        try:
            parts = [run_rows(feeds, rows) for rows in groups]
        except (RunError, MemoryFullError):
            return answers
        others = {
            name: _join([part[name] for part in parts], answer, groups) for name, answer in answers.items()
        }
        return answers if _mixes_rows(answers, others) else others

    return probe


def _row_groups(batch: int) -> list[list[int]]:
    """Divide the rows of a batch: each alone, a table's many in few parts, a single one twice."""
    if batch == 1:
        return [[0, 0]]
    bounds = np.linspace(0, batch, min(batch, _PARTS) + 1).astype(int)
    return [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]


def _join(parts: list[Array], answer: Array, groups: list[list[int]]) -> Array:
    """Join the answers for the rows; return `answer` itself where the output has no row per row."""
    # Squeeze without axes takes the batch away from a part of one row.
    if not all(array.ndim for array in (answer, *parts)):
        return answer
    rows = [part[: len(dict.fromkeys(group))] for part, group in zip(parts, groups, strict=True)]
    fits = answer.shape[0] == sum(map(len, rows)) and all(row.shape[1:] == answer.shape[1:] for row in rows)
    return np.concatenate(rows) if fits else answer


def _mixes_rows(answers: Answers, others: Answers) -> bool:
    """Return whether rows depend on the rest of the batch: by floats if there are any, since labels flip."""
    floats = {name: answer for name, answer in answers.items() if answer.dtype.kind == "f"}
    if not floats:
        return any(not np.array_equal(answer, others[name]) for name, answer in answers.items())
    return any(_far_apart(answer, others[name]) for name, answer in floats.items())


def _far_apart(answer: Array, other: Array) -> bool:
    with np.errstate(invalid="ignore"):
        difference = np.abs(answer.astype(np.float64) - other.astype(np.float64))
    return bool(np.nanmax(difference, initial=0.0) > _MIXED * scale_of(answer))


def perturb_weights(model: Model, precision: Precision = "float32") -> Model | None:
    """Copy the model with its weights moved as inputs are; None for a large model.

    For models without float inputs: token ids and bytes have no neighbours.
    """
    if model.weight_bytes > MOST_WEIGHTS:
        return None
    move = MOVES.get(precision, _move_float32)
    copy = model.clone()
    for name, value in copy.graph.initializers.items():
        tensor = value.const_value
        # Vectors stay: among them are the scales of Resize and other settings.
        if tensor is None or tensor.dtype not in _MOVABLE or len(tensor.shape) < 2:
            continue
        moved = move(tensor.numpy(), np.random.PCG64(zlib.crc32(name.encode())))
        value.const_value = ir.tensor(moved, name=name)
    return copy


def perturb_measured(model: Model, seed: int) -> Model | None:
    """Copy the model with what it quantizes at run time moved by rounding; None for a model without, or a large one.

    Every runtime gives the quantizer other last bits, and in deep networks some number always lies between two codes.
    Kernels of ONNX Runtime itself hardly differ there: its levels of optimization gave an encoder of 8 layers the
    same codes, and a difference of 2^-20 moved its answers by 3 %.
    """
    if model.weight_bytes > MOST_WEIGHTS or not any(node.op_type in _MEASURING for node in model.graph):
        return None
    copy = model.clone()
    graph, moved = copy.graph, dict[str, ir.Value]()
    share = add_initializer(graph, "onnxport.rounding", np.array(_MEASURED, np.float32))
    pitch = add_initializer(graph, "onnxport.pitch", np.array(_PITCH * seed, np.float32))
    for node in [node for node in graph if node.op_type in _MEASURING]:
        value = node.inputs[0]
        assert value is not None, "the operator requires it"
        assert value.name, "onnx-ir names all values"
        if value.name not in moved:
            moved[value.name] = _insert_wave(graph, node, value, share, pitch)
        node.replace_input_with(0, moved[value.name])
    return copy


def _insert_wave(
    graph: ir.Graph, place: ir.Node, value: ir.Value, share: ir.Value, pitch: ir.Value
) -> ir.Value:
    """Insert value + value * share * sin(value * pitch), whose sine is another one for every number."""

    def insert(op: str, *operands: ir.Value) -> ir.Value:
        node = ir.node(op, operands)
        node.outputs[0].name = f"{value.name}.{op}.{len(inserted)}"
        graph.insert_before(place, node)
        inserted.append(node)
        return node.outputs[0]

    inserted: list[ir.Node] = []
    wave = insert("Sin", insert("Mul", value, pitch))
    return insert("Add", value, insert("Mul", value, insert("Mul", wave, share)))


# Operators that measure the range of their first input.
_MEASURING = frozenset({"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
# What a norm or a softmax of some hundred numbers moves them by: eight last bits.
_MEASURED = 2.0**-20
_PITCH = 1e4


def widen_transforms(model: Model) -> Model | None:
    """Copy the model with its Fourier transforms, and sums that cancel, in float64; None without any, or a large one.

    ONNX Runtime's kernels are off by up to 3e-5 of the scale where a length is no power of two, in the same way in
    every run: no other probe sees that. A logarithm behind them makes much of it. Along an axis before the last they
    add one number after the other, which 512 equal ones put off by 5e-6; a variance as the mean of squares less the
    square of the mean makes much of that.
    """
    found = [node for node in model.graph if node.op_type in _TRANSFORMS and node.domain == ""]
    found = [
        node for node in found if node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.FLOAT
    ]
    found += _find_cancelling_sums(model)
    if not found or model.weight_bytes > MOST_WEIGHTS:
        return None
    names = {node.outputs[0].name for node in found}
    copy = model.clone()
    for node in [node for node in copy.graph if node.outputs and node.outputs[0].name in names]:
        _widen(copy.graph, node)
    return copy


# Attributes of ai.onnx.ml's trees and support vector machines that hold the terms of their sum.
_TERMS = frozenset({"target_weights", "class_weights", "leaf_weights", "base_values"})
_TERMS |= {f"{name}_as_tensor" for name in _TERMS} | {"coefficients", "rho"}


def perturb_terms(model: Model) -> Model | None:
    """Copy the model with what trees and support vectors add moved by the rounding of the largest; None without any.

    Inputs moved by rounding reach the same leaves, whose sum is rounded nonetheless: by the terms, which may cancel.
    """
    found = [node for node in model.graph.all_nodes() if node.domain == "ai.onnx.ml"]
    if model.weight_bytes > MOST_WEIGHTS or not any(_TERMS.intersection(node.attributes) for node in found):
        return None
    copy = model.clone()
    for number, node in enumerate(copy.graph.all_nodes()):
        for name in _TERMS.intersection(node.attributes if node.domain == "ai.onnx.ml" else ()):
            attribute = node.attributes[name]
            is_tensor = attribute.type == ir.AttributeType.TENSOR
            terms = (
                attribute.as_tensor().numpy() if is_tensor else np.array(attribute.as_floats(), np.float32)
            )
            moved = _move_terms(terms, np.random.Generator(np.random.PCG64(number)))
            value = ir.AttrTensor(name, ir.tensor(moved)) if is_tensor else None
            node.attributes[name] = value or ir.AttrFloat32s(name, moved.tolist())
    return copy


def _move_terms(terms: Array, random: np.random.Generator) -> Array:
    """Move terms by one step of the largest; no sign changes, which ONNX Runtime reads as the kind of a forest.

    Whole numbers, whose sum float32 holds, stay: leaves of an isolation forest are numbers that it looks up.
    """
    if np.array_equal(terms, np.round(terms)) and np.abs(terms).sum() < _WHOLE:
        return terms
    step = np.abs(terms).max(initial=0.0) * np.finfo(np.float32).eps
    moved = terms + step * random.choice(np.array([-1, 1]), terms.shape)
    return np.where(np.sign(moved) == np.sign(terms), moved, terms).astype(terms.dtype)


# Op -> its operands that are signals, of one element type with the result.
_TRANSFORMS = {"STFT": (0, 2), "DFT": (0,)}
_SUMS = ("ReduceMean", "ReduceSum")
# What may stand between a sum and the difference: factors and shapes.
_BETWEEN = frozenset("Cast Div Expand Identity Mul Pow Reshape Squeeze Unsqueeze".split())


def _find_cancelling_sums(model: Model) -> list[ir.Node]:
    """List the sums of differences whose second operand is a square: variances."""
    found: dict[ir.Node, None] = {}
    for node in model.graph:
        if node.op_type == "Sub" and _is_square(node.inputs[1]):
            sums = [_sum_before(operand) for operand in node.inputs]
            if None not in sums:
                found |= dict.fromkeys(
                    each for each in sums if each is not None and _is_float(each.inputs[0])
                )
    return list(found)


def _is_float(value: ir.Value | None) -> bool:
    """Return whether a value may be float32: many inner ones have no type."""
    return value is not None and value.dtype in (None, ir.DataType.FLOAT)


def _is_square(value: ir.Value | None) -> bool:
    node = None if value is None else value.producer()
    if node is None or node.op_type == "Pow":
        return node is not None and _is_two(node.inputs[1])
    return node.op_type == "Mul" and node.inputs[0] is node.inputs[1]


def _is_two(value: ir.Value | None) -> bool:
    constant = None if value is None or value.const_value is None else value.const_value.numpy()
    return constant is not None and constant.size == 1 and constant.item() == 2


def _sum_before(value: ir.Value | None) -> ir.Node | None:
    """Return the sum that a value comes from, by factors and shapes alone."""
    while value is not None and (node := value.producer()) is not None:
        if node.op_type in _SUMS:
            return node
        computed = [each for each in dict.fromkeys(node.inputs) if each is not None and each.producer()]
        if node.op_type not in _BETWEEN or not computed:
            return None
        value = computed[0]
    return None


def _widen(graph: ir.Graph, node: ir.Node) -> None:
    """Put a node between casts to float64 and back; its result keeps its name."""
    result = node.outputs[0]
    for index in _TRANSFORMS.get(node.op_type, (0,)):
        operand = node.inputs[index] if index < len(node.inputs) else None
        if operand is not None:
            cast = ir.node("Cast", [operand], {"to": ir.DataType.DOUBLE})
            cast.outputs[0].name = f"{result.name}.operand.{index}"
            graph.insert_before(node, cast)
            node.replace_input_with(index, cast.outputs[0])
    back = ir.node("Cast", [result], {"to": ir.DataType.FLOAT})
    name, result.name = result.name, f"{result.name}.float64"
    # A copy shares its types with the original: they are replaced, not changed.
    back.outputs[0].name, back.outputs[0].shape, back.outputs[0].type = name, result.shape, result.type
    result.type = ir.TensorType(ir.DataType.DOUBLE)
    graph.insert_after(node, back)
    result.replace_all_uses_with(back.outputs[0], replace_graph_outputs=True)
    back.replace_input_with(0, result)


def _move_float32(array: Array, stream: np.random.PCG64) -> Array:
    """Move values to neighbours; returns an array also for a value without an axis."""
    random = np.random.Generator(stream)
    if array.dtype == np.float64:
        return np.asarray(array * (1.0 + 1e-7 * random.integers(-1, 2, array.shape)))
    if array.dtype != np.float32:
        return array
    steps = np.array([-1, 0, 0, 1], np.int32)[random.integers(0, 4, array.shape, dtype=np.uint8)]
    # A zero would move to a denormal, which is no rounding; the largest float has no neighbour above.
    steps *= (array != 0) & (np.abs(array) < np.finfo(np.float32).max)
    # As integers, neighbouring floats of one sign are neighbours (IEEE 754).
    return np.asarray((array.view(np.int32) + steps).view(np.float32))


def _move_by(share: float) -> Move:
    """Make a Move by `share`: up, down or not at all, each for a third of the numbers."""

    def move(array: Array, stream: np.random.PCG64) -> Array:
        if array.dtype.kind != "f":
            return array
        signs = np.random.Generator(stream).integers(-1, 2, array.shape)
        return np.asarray((array * (1.0 + share * signs)).astype(array.dtype))

    return move


_MOVABLE = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
# Moves for a reference that rounds to these. Integers of 8 bits move as float32: that changes the code of numbers
# between two codes, while an eighth of a step gave two to a hundred times the noise between kernels. For 16 bits ONNX
# Runtime has only one kernel: a step of such a code changes as many codes as LiteRT's kernels do (gender, R-Net, YuNet,
# PP-OCR det and MobileNetV2 with some layers in 16 bits).
MOVES: dict[Precision, Move] = {
    "float16": _move_by(2.0**-11),
    "bfloat16": _move_by(2.0**-8),
    "int16x8": _move_by(2.0**-16),
}


class UsualNoise:
    """The largest noise of each output over the ordinary sets, as a share of its group's scale.

    Later answers get at least this noise, those to adversarial companions MARGIN times as much. A probe moves each
    input to its neighbours, and a zero has none: on zeros a network seems to have no noise, and yet its biases are
    rounded in every layer.
    """

    def __init__(self) -> None:
        self._share: dict[str, float] = {}
        self._bits: dict[str, float] = {}  # the same of last bits, which are no share of anything

    def add(self, name: str, answer: Array, noise: Noise, floor: float = 0.0) -> None:
        """Count the answer to an ordinary set, up to the largest noise that is conclusive.

        Args:
            floor: what the output's last bits may differ by: such noise tells nothing of larger answers.
        """
        if answer.dtype.kind != "f" or noise.reshaped:
            return
        scales = group_scales(answer)
        is_share = noise.groups > _FLOORS * floor
        bits = float(np.max(noise.groups[~is_share], initial=0.0))
        self._bits[name] = max(self._bits.get(name, 0.0), bits)
        counts = (scales > 0) & is_share
        share = float(np.max(noise.groups[counts] / scales[counts], initial=0.0))
        self._share[name] = max(self._share.get(name, 0.0), min(share, CONCLUSIVE_NOISE))

    def at_least(self, name: str, answer: Array, noise: Noise, margin: float = MARGIN) -> Noise:
        """Return the noise of an answer: the measured or `margin` times the usual one, whichever is larger."""
        if answer.dtype.kind != "f" or noise.reshaped:
            return noise
        share, bits = self._share.get(name, 0.0), self._bits.get(name, 0.0)
        usual = margin * np.maximum(share * group_scales(answer), bits)
        # A mean over differences that zeros cannot show proves nothing.
        return replace(noise, groups=np.maximum(noise.groups, usual), rms=None)

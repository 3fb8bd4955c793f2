"""Runs of the reference that differ from its answer by rounding alone: what they give is its noise."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Collection

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.runtimes.base import MemoryFullError, RunError
from onnxport.samples.sizes import OpenSizes
from onnxport.validate.metrics import scale_of
from onnxport.validate.report import Precision

Answers = dict[str, Array]
Run = Callable[[Feeds], Answers]
# Takes inputs and the reference's answer to them, gives the other answer.
Probe = Callable[[Feeds, Answers], Answers]
# Moves an array's numbers by what rounding explains.
Move = Callable[[Array, np.random.PCG64], Array]

# Larger models are not copied to perturb their weights.
_MOST_WEIGHTS = 512 * 2**20
# A row that changes more than this with what lies beside it in the batch: the model mixes rows, that is not rounding.
_MIXED = 1e-3
# Runs that the rows of a batch are divided into, at most.
_PARTS = 16


def perturbed_inputs(
    run: Run, seed: int, precision: Precision = "float32", exact: Collection[str] = ()
) -> Probe:
    """Every other float32 of the inputs moved to a neighbour, a relative change of 1e-7.

    float64 moves as far, since float32 is what artefacts compute in; float16 stays, whose neighbours are 1e-3 away.
    For a reference of lower precision the inputs move by what matters there (MOVES). Those called `exact` stay: what is
    compared with thresholds as it comes is on the same side in every right artefact.
    """
    move = MOVES.get(precision, _moved)

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


def nudged_zeros(run: Run, exact: Collection[str] = ()) -> Probe:
    """The zeros among other numbers moved by the rounding of the largest, up or down.

    A zero has no neighbour, and yet every sum that it goes into rounds. Between sparse inputs a spectrum has magnitudes
    of nothing but that. For `exact` see `perturbed_inputs`.
    """

    def probe(feeds: Feeds, answers: Answers) -> Answers:
        moved = {name: array if name in exact else _nudged(array) for name, array in feeds.items()}
        if all(moved[name] is array for name, array in feeds.items()):
            return answers
        try:
            return run(moved)
        except (RunError, MemoryFullError):
            return answers

    return probe


def _nudged(array: Array) -> Array:
    """The array itself where there is nothing to move or nothing to move it by."""
    if array.dtype != np.float32 or not array.any() or array.all():
        return array
    random = np.random.Generator(np.random.PCG64(array.size))
    step = np.float32(np.finfo(np.float32).eps * np.abs(array).max())
    return np.where(array == 0, step * random.choice(np.array([-1, 1], np.float32), array.shape), array)


def other_kernels(run: Run) -> Probe:
    """Another runtime of the same model: graph optimization off, or weights that moved."""
    return lambda feeds, answers: run(feeds)


def other_batch(run: Run, inputs: tuple[TensorSpec, ...]) -> Probe | None:
    """The rows of a batch in other company: each alone where there are several, beside itself where there is one.

    Kernels sum in another order then. No probe for models whose batch is fixed, and no difference counted for those
    that mix the rows of a batch.
    """
    axes = OpenSizes(inputs, {spec.name: spec.shape for spec in inputs}).batch_axes
    if not axes:
        return None

    def of_rows(feeds: Feeds, rows: list[int]) -> Answers:
        return run(
            {name: array.take(rows, axes[name]) if name in axes else array for name, array in feeds.items()}
        )

    def probe(feeds: Feeds, answers: Answers) -> Answers:
        name, axis = next(iter(axes.items()))
        batch = feeds[name].shape[axis]
        if not batch:
            return answers
        groups = _groups(batch)
        try:
            parts = [of_rows(feeds, rows) for rows in groups]
        except (RunError, MemoryFullError):
            return answers
        others = {
            name: _joined([part[name] for part in parts], answer, groups) for name, answer in answers.items()
        }
        return answers if _mixed(answers, others) else others

    return probe


def _groups(batch: int) -> list[list[int]]:
    """The rows of a batch, each alone; a table's many in few parts; one beside itself."""
    if batch == 1:
        return [[0, 0]]
    bounds = np.linspace(0, batch, min(batch, _PARTS) + 1).astype(int)
    return [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]


def _joined(parts: list[Array], answer: Array, groups: list[list[int]]) -> Array:
    """The answers for the rows as one for the batch; `answer` itself where the output has no row per row."""
    if not answer.ndim:
        return answer
    rows = [part[: len(dict.fromkeys(group))] for part, group in zip(parts, groups, strict=True)]
    fits = answer.shape[0] == sum(map(len, rows)) and all(row.shape[1:] == answer.shape[1:] for row in rows)
    return np.concatenate(rows) if fits else answer


def _mixed(answers: Answers, others: Answers) -> bool:
    """Whether rows depend on what lies beside them: told by floats, if there are any, since labels flip."""
    floats = {name: answer for name, answer in answers.items() if answer.dtype.kind == "f"}
    if not floats:
        return any(not np.array_equal(answer, others[name]) for name, answer in answers.items())
    return any(_far_apart(answer, others[name]) for name, answer in floats.items())


def _far_apart(answer: Array, other: Array) -> bool:
    with np.errstate(invalid="ignore"):
        difference = np.abs(answer.astype(np.float64) - other.astype(np.float64))
    return bool(np.nanmax(difference, initial=0.0) > _MIXED * scale_of(answer))


def perturbed_weights(model: Model, precision: Precision = "float32") -> Model | None:
    """A copy of the model with its weights moved as inputs are; None for a large model.

    For models without float inputs: token ids and bytes have no neighbours.
    """
    if model.weight_bytes > _MOST_WEIGHTS:
        return None
    move = MOVES.get(precision, _moved)
    copy = model.clone()
    for name, value in copy.graph.initializers.items():
        tensor = value.const_value
        # Vectors are left alone: among them are the scales of Resize and other settings.
        if tensor is None or tensor.dtype not in _MOVABLE or len(tensor.shape) < 2:
            continue
        moved = move(tensor.numpy(), np.random.PCG64(zlib.crc32(name.encode())))
        value.const_value = ir.tensor(moved, name=name)
    return copy


def _moved(array: Array, stream: np.random.PCG64) -> Array:
    """The values at their neighbours; an array also where there is one value without an axis."""
    random = np.random.Generator(stream)
    if array.dtype == np.float64:
        return np.asarray(array * (1.0 + 1e-7 * random.integers(-1, 2, array.shape)))
    if array.dtype != np.float32:
        return array
    steps = np.array([-1, 0, 0, 1], np.int32)[random.integers(0, 4, array.shape, dtype=np.uint8)]
    # A zero would move to a denormal, which says nothing of rounding; the largest float has no neighbour above.
    steps *= (array != 0) & (np.abs(array) < np.finfo(np.float32).max)
    # As integers, neighbouring floats of one sign are neighbours (IEEE 754).
    return np.asarray((array.view(np.int32) + steps).view(np.float32))


def _moved_by(share: float) -> Move:
    """Half a step of float16 or bfloat16 and more, up or down, for every third number each."""

    def move(array: Array, stream: np.random.PCG64) -> Array:
        if array.dtype.kind != "f":
            return array
        signs = np.random.Generator(stream).integers(-1, 2, array.shape)
        return np.asarray((array * (1.0 + share * signs)).astype(array.dtype))

    return move


_MOVABLE = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
# What inputs are moved by for a reference that rounds to these. Integers of 8 bits need no other move than float32: it
# turns what lies between two codes. An eighth of a step was tried, and found two to a hundred times the noise between
# kernels. Of 16 bits ONNX Runtime has no kernels to differ from each other: a step of such a code turns as many as
# LiteRT's kernels do (gender, R-Net, YuNet, PP-OCR det and MobileNetV2 with some layers in 16 bits).
MOVES: dict[Precision, Move] = {
    "float16": _moved_by(2.0**-11),
    "bfloat16": _moved_by(2.0**-8),
    "int16x8": _moved_by(2.0**-16),
}

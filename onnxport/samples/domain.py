"""What values an input may hold, read from the graph: noise outside that domain would prove nothing.

An integer that indexes an embedding must stay below its rows, a mask is 0 or 1, a length lies within the sizes.
Each input is followed through operators that leave its values alone to the first ones that use them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.artifact import TensorSpec
from onnxport.model import Model

Array = np.ndarray[Any, np.dtype[Any]]

Kind = Literal["real", "integer", "mask", "length", "choice"]

# Operators whose output holds the values of their first input (of every input for Concat).
CARRIERS = frozenset(
    "Cast Identity Reshape Squeeze Unsqueeze Transpose Slice Concat Flatten Expand Tile Split Gather Pad Dropout "
    "GatherElements GatherND DepthToSpace SpaceToDepth".split()
)
# (operator, index of the input) -> the input that is indexed there.
_INDICES = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("ScatterElements", 1): 0,
    ("Scatter", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("EmbedLayerNormalization", 1): 4,
}
_COMPARISONS = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
# Positions that take the length of a sequence.
_LENGTHS = frozenset({("LSTM", 4), ("GRU", 4), ("RNN", 4), ("ReverseSequence", 1), ("Loop", 0), ("Range", 1)})
_POSITIVE = frozenset({"Log", "Sqrt"})

_MASK_NAME = re.compile(r"mask", re.IGNORECASE)
_LENGTH_NAME = re.compile(r"(^|[_./])(len|lens|length|lengths)($|[_./:\d])|_?length(s)?$", re.IGNORECASE)
_RATE_NAME = re.compile(r"^(sr|sample_?rate|sampling_?rate)$", re.IGNORECASE)

# More distinct constants than this in a comparison are a one-hot encoding, not a switch.
_SWITCH = 8


@dataclass(frozen=True)
class Domain:
    """The values that one input may hold.

    Attributes:
        kind: "real" floats, "integer" in [low, high], "mask" of 0 and 1, "length" in 1..size of the sequence,
            "choice" among `values`.
        low, high: both included.
        positive: floats that go straight into a logarithm or a root.
        center, spread: mean and standard deviation of each feature on the last axis, where a Scaler tells them.
    """

    kind: Kind
    low: int = 0
    high: int = 1
    values: tuple[int, ...] = ()
    positive: bool = False
    center: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()


def domains(model: Model) -> dict[str, Domain]:
    """The domain of every run-time input of `model`, which is `without_functions`."""
    values = {value.name: value for value in model.graph.inputs}
    return {spec.name: _domain(spec, values[spec.name]) for spec in model.inputs}


def without_functions(model: Model) -> Model:
    """The model itself, or a copy in which calls of model-local functions are replaced by what they do."""
    if not model.ir.functions:
        return model
    copy = model.clone()
    common.InlinePass()(copy.ir)
    return copy


def declared_domains(inputs: Sequence[TensorSpec]) -> dict[str, Domain]:
    """The domains of a model whose graph cannot be read (`.ort`, `.tflite`): by name and dtype alone."""
    return {spec.name: _by_name(spec) for spec in inputs}


def _domain(spec: TensorSpec, value: ir.Value) -> Domain:
    named = _by_name(spec)
    uses = list(_uses(value))
    if named.kind == "real":
        center, spread = next((_features(node) for node, _ in uses if node.op_type == "Scaler"), ((), ()))
        positive = any(node.op_type in _POSITIVE for node, _ in uses)
        return replace(named, positive=positive, center=center, spread=spread)
    rows = [size for node, index in uses if (size := _rows(node, index)) is not None]
    if rows and spec.dtype != "bool":
        return Domain("integer", 0, max(min(rows) - 1, 0))
    if named.kind in ("mask", "length", "choice"):
        return named
    if any((node.op_type, index) in _LENGTHS for node, index in uses):
        return Domain("length")
    constants = sorted({constant for node, index in uses for constant in _compared(node, index)})
    if len(constants) > _SWITCH:
        return Domain("integer", constants[0], constants[-1])
    if constants:
        return Domain("choice", values=(*constants, constants[-1] + 1))
    if any(node.op_type == "Where" and index == 0 for node, index in uses):
        return Domain("mask")
    return named


def _by_name(spec: TensorSpec) -> Domain:
    if spec.dtype.startswith(("float", "bfloat")):
        return Domain("mask") if _MASK_NAME.search(spec.name) else Domain("real")
    if spec.dtype == "bool" or _MASK_NAME.search(spec.name):
        return Domain("mask")
    if _LENGTH_NAME.search(spec.name):
        return Domain("length")
    if _RATE_NAME.match(spec.name):
        return Domain("choice", values=(16000, 8000))
    limits = {"uint8": (0, 255), "int8": (-128, 127)}
    # Small and not negative is within most domains that the graph does not show.
    low, high = limits.get(spec.dtype, (0, 9))
    return Domain("integer", low, high)


def _uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Every node that sees the value of `value` unchanged, through carriers, with the position."""
    pending, seen = [value], {id(value)}
    while pending:
        for node, index in pending.pop().uses():
            yield node, index
            carried: Sequence[ir.Value] = ()
            if node.op_type in CARRIERS and (index == 0 or node.op_type == "Concat"):
                carried = node.outputs
            fresh = [output for output in carried if id(output) not in seen]
            seen.update(id(output) for output in fresh)
            pending.extend(fresh)


def _rows(node: ir.Node, index: int) -> int | None:
    """How many values an index may take at this position of `node`; None where it is no index."""
    if node.op_type == "OneHot" and index == 0:
        depth = constant(node.inputs[1])
        return None if depth is None else int(depth.ravel()[0])
    table = _INDICES.get((node.op_type, index))
    if table is None:
        return None
    indexed = node.inputs[table]
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    if indexed is None or indexed.shape is None or not -len(indexed.shape) <= axis < len(indexed.shape):
        return None
    size = indexed.shape[axis]
    return size if isinstance(size, int) else None


def _features(scaler: ir.Node) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What ai.onnx.ml.Scaler, (x - offset) * scale, was fitted to: tabular data means nothing without it."""
    offset, scale = (tuple(scaler.attributes[name].as_floats()) for name in ("offset", "scale"))
    return offset, tuple(1.0 / factor if factor else 0.0 for factor in scale)


def _compared(node: ir.Node, index: int) -> list[int]:
    """The constants that `node` compares its input with."""
    if node.op_type not in _COMPARISONS:
        return []
    other = constant(node.inputs[1 - index])
    return [] if other is None or other.dtype.kind not in "iu" else [int(x) for x in np.unique(other)]


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node's output, unread; None for anything that is computed."""
    if value is None:
        return None
    producer = value.producer()
    if value.const_value is None and producer is not None and producer.op_type == "Constant":
        return ir.convenience.get_const_tensor(value)
    return value.const_value


def constant(value: ir.Value | None) -> Array | None:
    """As `constant_tensor`, read into an array."""
    tensor = constant_tensor(value)
    return None if tensor is None else tensor.numpy()

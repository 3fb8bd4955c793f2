"""The domain of an input, inferred from the graph: inputs outside it would prove nothing.

An index into an embedding is below its rows, a mask is 0 or 1, a length is within the sizes. Each input is followed
through operators that keep its values to the first ones that use them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.samples.columns import Column
from onnxport.samples.demands.demand import Structure
from onnxport.samples.ml_operators import (
    compared_levels,
    fitted_rows,
    is_tree_ensemble,
    known_texts,
    merge_columns,
    tree_columns,
)
from onnxport.samples.value_ranges import HIDDEN, Bounds, bounds, is_added_to_scores, is_mask, is_positive
from onnxport.samples.value_uses import CARRIERS, constant, made_by, uses

Kind = Literal[
    "real",
    "integer",
    "boolean",
    "mask",
    "length",
    "choice",
    "position",
    "one-hot",
    "state",
    "table",
    "setting",
]

# (operator, input of the indices) -> the input that they index.
_INDICES = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("ScatterElements", 1): 0,
    ("Scatter", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("EmbedLayerNormalization", 1): 4,
}
_COMPARISONS = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
# (operator, input) that takes the length of a sequence.
_LENGTHS = frozenset({("LSTM", 4), ("GRU", 4), ("RNN", 4), ("ReverseSequence", 1), ("Loop", 0), ("Range", 1)})

_MASK_NAME = re.compile(r"mask", re.IGNORECASE)
_LENGTH_NAME = re.compile(r"(^|[_./])(len|lens|length|lengths)($|[_./:\d])|_?length(s)?$", re.IGNORECASE)
_POSITION_NAME = re.compile(r"^pos(ition)?s?$|position_?ids?", re.IGNORECASE)
_ONE_HOT_NAME = re.compile(r"one_?hot", re.IGNORECASE)
_RATE_NAME = re.compile(r"^(sr|sample_?rate|sampling_?rate)$", re.IGNORECASE)

# Most constants of a switch; more in a comparison are a one-hot encoding.
_SWITCH = 8


@dataclass(frozen=True)
class Domain:
    """The values that one input may have.

    Attributes:
        kind: "real" floats, "integer" in [low, high] (of floats, too, that are cast to an index), "boolean", "mask" of
            two values (0 and 1 unless given), "length" in 1..size of the sequence, "choice" among `values`, "position"
            0, 1, 2, ... up to `high`, "one-hot" along the last axis, "state" of a recurrent network in -1..1, "table"
            whose values are compared, unrounded, "setting" that was chosen for an operator's axes, sizes and the like.
        low, high: inclusive bounds.
        values: the choices; of a mask, the value that hides and the one that keeps.
        positive: whether floats go into a logarithm, a root, a power or a denominator.
        bounds: the range of an image before the graph normalises it.
        center, spread: mean and standard deviation of each feature on the last axis, from a Scaler.
        columns: of a table, its last axis.
        precision: of a table, the float dtype of its numbers: a model exported to float32 gets float32 values.
        nonzero, structure, axis: see Demand.
        limits: a higher bound, exclusive, per element of the last axis.
        setting: the value of a setting.
        is_smooth: of a table, whether the model computes with its numbers instead of comparing them; then a rounding
            error of the input is noise.
    """

    kind: Kind
    low: int = 0
    high: int = 1
    values: tuple[int, ...] = ()
    positive: bool = False
    bounds: Bounds | None = None
    center: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    columns: tuple[Column, ...] = ()
    precision: str = "float32"
    is_smooth: bool = False
    nonzero: bool = False
    structure: Structure = ""
    axis: int = 0
    limits: tuple[int, ...] = ()
    setting: Array | None = field(default=None, compare=False)

    @property
    def is_exact(self) -> bool:
        """Return whether each number stands for itself: rounded, it would be another index, or take another branch."""
        return self.kind == "integer" or (self.kind == "table" and not self.is_smooth)


# Operators that pass a table on to trees, or look up its categories, without computing with its numbers.
_PASS_UNCHANGED = frozenset(
    "Cast Concat Identity Gather Equal Greater GreaterOrEqual Less LessOrEqual IsNaN Where".split()
)


def domains(model: Model) -> dict[str, Domain]:
    """Return the domain of every run-time input of `model`, which must be `without_functions`."""
    values = {value.name: value for value in model.graph.inputs}
    return {spec.name: _domain(spec, values[spec.name]) for spec in model.inputs}


def without_functions(model: Model, keep: str = "") -> Model:
    """Return the model, or a copy with model-local functions inlined, but for those of the domain `keep`.

    Functions of another opset than the model's stay: the analyses then know as little of their nodes as of those of
    foreign domains.
    """
    if all(keep and domain == keep for domain, *_ in model.ir.functions):
        return model
    copy = model.clone()
    try:
        common.InlinePass(lambda function: not keep or function.domain != keep)(copy.ir)
    except ValueError:
        return model
    return copy


def declared_domains(inputs: Sequence[TensorSpec]) -> dict[str, Domain]:
    """Return domains by name and dtype alone, for a model whose graph cannot be read (`.ort`, `.tflite`)."""
    return {spec.name: _domain_by_name(spec) for spec in inputs}


def _domain(spec: TensorSpec, value: ir.Value) -> Domain:
    named = _domain_by_name(spec)
    if spec.dtype.startswith(("float", "bfloat")):
        return _float_domain(named, value)
    readers = list(uses(value))
    if spec.dtype == "string":
        codes = next((found for node, _ in readers if (found := known_texts(node))), ())
        return Domain("table", columns=(Column(codes=codes),)) if codes else named
    rows = _least_rows(readers)
    if rows is not None and spec.dtype != "bool":
        return Domain("position" if named.kind == "position" else "integer", 0, max(rows - 1, 0))
    if spec.dtype == "bool" and not _MASK_NAME.search(spec.name) and not is_mask(value):
        return Domain("boolean")
    if named.kind != "integer":
        return named
    if any(
        (node.op_type, index) in _LENGTHS or _is_compared_with_range(node, index) for node, index in readers
    ):
        return Domain("length")
    constants = sorted({constant for node, index in readers for constant in _compared_constants(node, index)})
    if len(constants) > _SWITCH:
        return Domain("integer", constants[0], constants[-1])
    if is_mask(value) or (constants and len(spec.shape) > 1 and {0, 1}.issuperset(constants)):
        return Domain("mask")
    return Domain("choice", values=(*constants, constants[-1] + 1)) if constants else named


def _float_domain(named: Domain, value: ir.Value) -> Domain:
    if named.kind == "mask":
        return replace(named, values=(HIDDEN, 0)) if is_added_to_scores(value) else named
    if named.kind != "real":
        return named
    readers = list(uses(value))
    if is_mask(value):
        return Domain("mask")
    if _becomes_whole(value) and (rows := _least_rows(readers)) is not None:
        return Domain("integer", 0, max(rows - 1, 0))
    if (table := _table_domain(readers, value)) is not None:
        return table
    center, spread = next(
        (_features(node, value) for node, _ in readers if node.op_type == "Scaler"), ((), ())
    )
    if not center and (width := _width(value)) is not None and len(value.shape or ()) == 2:
        fitted = (fitted_rows(*use, width) for use in readers)
        center, spread = next((each for each in fitted if each[0]), ((), ()))
    return replace(named, positive=is_positive(value), bounds=bounds(value), center=center, spread=spread)


def _becomes_whole(value: ir.Value) -> bool:
    """Return whether floats are cast to integers before anything else reads them, as Keras feeds its Embedding."""
    readers = [node for node, _ in value.uses()]
    return bool(readers) and all(
        ir.DataType(node.attributes["to"].as_int()).is_integer()
        if node.op_type == "Cast"
        else node.op_type in CARRIERS and all(map(_becomes_whole, node.outputs))
        for node in readers
    )


def _least_rows(readers: Sequence[tuple[ir.Node, int]]) -> int | None:
    """Return the rows of the smallest table that a value is an index of; None where it is no index."""
    return min((size for node, index in readers if (size := _rows(node, index)) is not None), default=None)


def _table_domain(readers: Sequence[tuple[ir.Node, int]], value: ir.Value) -> Domain | None:
    """Return the domain of a table that trees compare; None where other operators compute with it too."""
    width, dtype = _width(value), value.dtype
    levels = compared_levels(readers) if len(value.shape or ()) == 2 else ()
    if levels and width is not None and dtype is not None:
        return Domain("table", columns=(Column(levels=levels),) * width, precision=dtype.numpy().name)
    ensembles = [node for node, _ in readers if is_tree_ensemble(node)]
    others = {node.op_type for node, _ in readers if not is_tree_ensemble(node)}
    if not ensembles or not others <= _PASS_UNCHANGED or width is None or dtype is None:
        return None
    found = [_compared_columns(node, value, width) for node in ensembles]
    known = [columns for columns in found if columns is not None]
    if len(known) < len(found):
        return None
    columns = tuple(merge_columns(each) for each in zip(*known, strict=True))
    return Domain("table", columns=columns, precision=dtype.numpy().name)


def _compared_columns(ensemble: ir.Node, value: ir.Value, width: int) -> tuple[Column, ...] | None:
    """Return what an ensemble compares the columns of `value` with: of all of them, or of those that Gather takes.

    An isolation forest is an ensemble per tree, each behind a Gather of its features.
    """
    joined = ensemble.inputs[0]
    if (start := _start(value, joined)) is not None:
        return tree_columns(ensemble, start + width)[start:]
    gather = None if joined is None else joined.producer()
    if gather is None or gather.op_type != "Gather" or _start(value, gather.inputs[0]) != 0:
        return None
    chosen, axis = constant(gather.inputs[1]), gather.attributes.get_int("axis", 0)
    if chosen is None or chosen.ndim != 1 or axis not in (-1, len(value.shape or ()) - 1):
        return None
    columns = [Column()] * width
    for place, column in zip(chosen, tree_columns(ensemble, len(chosen)), strict=True):
        columns[place] = merge_columns((columns[place], column))
    return tuple(columns)


def _domain_by_name(spec: TensorSpec) -> Domain:
    if spec.dtype.startswith(("float", "bfloat")):
        if _ONE_HOT_NAME.search(spec.name):
            return Domain("one-hot")
        if spec.dtype == "float8_e8m0fnu":  # powers of 2
            return Domain("real", positive=True)
        return Domain("mask") if _MASK_NAME.search(spec.name) else Domain("real")
    if spec.dtype == "bool" or _MASK_NAME.search(spec.name):
        return Domain("mask")
    if _LENGTH_NAME.search(spec.name):
        return Domain("length")
    if _POSITION_NAME.search(spec.name):
        return Domain("position", 0, 511)  # BERT's
    if _RATE_NAME.match(spec.name):
        return Domain("choice", values=(16000, 8000))
    limits = {"uint8": (0, 255), "int8": (-128, 127)}
    # Small and not negative: within most domains that the graph does not show.
    low, high = limits.get(spec.dtype, (0, 9))
    return Domain("integer", low, high)


def _rows(node: ir.Node, index: int) -> int | None:
    """Return the number of values of an index at this input of `node`; None where it is no index."""
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


def _features(scaler: ir.Node, value: ir.Value) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the center and spread that ai.onnx.ml.Scaler, (x - offset) * scale, was fitted to.

    Where Concat joins several columns before the Scaler, `value` gets its own part.
    """
    offset, scale = (tuple(scaler.attributes[name].as_floats()) for name in ("offset", "scale"))
    spread = tuple(1.0 / factor if factor else 0.0 for factor in scale)
    width = _width(value)
    if width is None or {len(offset), len(spread)} <= {1, width}:
        return offset, spread
    start = _start(value, scaler.inputs[0])
    if start is None:
        return (), ()
    center, spread = (each if len(each) == 1 else each[start : start + width] for each in (offset, spread))
    return center, spread


def _start(value: ir.Value, joined: ir.Value | None) -> int | None:
    """Return the offset of `value` on the last axis of `joined`, Concat's result; None where it is unknown."""
    if joined is value:
        return 0
    start = 0
    for part in _parts(joined):
        if (within := _start(value, part)) is not None:
            return start + within
        if (width := _width(part)) is None:
            return None
        start += width
    return None


def _width(value: ir.Value | None) -> int | None:
    """Return the size of the last axis, from a value's parts where it declares none."""
    if value is not None and value.shape is not None and len(value.shape):
        size = value.shape[-1]
        return size if isinstance(size, int) else None
    widths = [_width(part) for part in _parts(value)]
    known = [width for width in widths if width is not None]
    return sum(known) if known and len(known) == len(widths) else None


def _parts(value: ir.Value | None) -> Sequence[ir.Value | None]:
    """Return the inputs of the Concat, Cast or Identity that computes `value`; () for any other operator."""
    node = None if value is None else value.producer()
    return node.inputs if node is not None and node.op_type in ("Cast", "Concat", "Identity") else ()


def _compared_constants(node: ir.Node, index: int) -> list[int]:
    """Return the constants that `node` compares its input with."""
    if node.op_type not in _COMPARISONS:
        return []
    other = constant(node.inputs[1 - index])
    return [] if other is None or other.dtype.kind not in "iu" else [int(x) for x in np.unique(other)]


def _is_compared_with_range(node: ir.Node, index: int) -> bool:
    """Return whether `node` compares its input with 0, 1, 2, ..., as models turn a length into a mask."""
    return node.op_type in _COMPARISONS - {"Equal"} and made_by(node.inputs[1 - index], "Range")

"""Weights of a model that can be stored in fewer bits, their readers, and why others stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.quantize.weights.encoding import Layout

# A weight of fewer elements saves less than its scale and its operator take.
SMALL = 512
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_ONNX = ("", "ai.onnx")


@dataclass(frozen=True)
class Use:
    """One operand that is a weight."""

    node: ir.Node  # the product, table look-up or recurrent layer
    position: int  # which of its operands
    # The axes of the stored weight in the order in which the node reads them: a Transpose may lie between.
    order: tuple[int, ...]

    @property
    def is_plain_product(self) -> bool:
        """Return whether the node is x @ W with a two-dimensional W, and at most a bias."""
        node = self.node
        if node.op_type == "MatMul":
            return self.position == 1 and len(self.order) == 2
        if node.op_type != "Gemm" or self.position != 1 or node.attributes.get_int("transA", False):
            return False
        factors = ("alpha", "beta") if self.bias is not None else ("alpha",)
        return all(node.attributes.get_float(name, 1.0) == 1 for name in factors)

    @property
    def bias(self) -> ir.Value | None:
        """The bias of a Gemm."""
        return self.node.inputs[2] if self.node.op_type == "Gemm" and len(self.node.inputs) == 3 else None


@dataclass(frozen=True)
class Weight:
    """A constant that can be stored in fewer bits."""

    value: ir.Value  # the initializer
    uses: tuple[Use, ...]  # all that read it
    layout: Layout  # its rows

    @property
    def name(self) -> str:
        return self.value.name or ""

    @property
    def graph(self) -> ir.Graph:
        """The graph of the initializer."""
        assert self.value.graph is not None, "an initializer is of a graph"
        return self.value.graph

    @property
    def is_table(self) -> bool:
        """Return whether all readers only look up rows."""
        return all(use.node.op_type == "Gather" for use in self.uses)

    @property
    def dtype(self) -> ir.DataType:
        assert self.value.const_value is not None
        return self.value.const_value.dtype

    def rows(self) -> Array:
        """[rows, row] float32, read on demand."""
        assert self.value.const_value is not None
        return self.layout.rows(self.value.const_value.numpy()).astype(np.float32, copy=False)


@dataclass
class Found:
    """The weights found."""

    weights: list[Weight] = field(default_factory=list)  # in the order of the graph's nodes
    left: Counter[str] = field(default_factory=Counter)  # reason to how many weights stay as they are for it


def _matmul(node: ir.Node, position: int, rank: int) -> tuple[int, ...]:
    return (rank - 2 if position else rank - 1,) if rank > 1 else ()


def _gemm(node: ir.Node, position: int, rank: int) -> tuple[int, ...]:
    flipped = node.attributes.get_int("transB" if position else "transA", 0)
    return ((0, 1)[flipped] if position else (1, 0)[flipped],)


def _table(node: ir.Node, position: int, rank: int) -> tuple[int, ...]:
    return (1,) if rank == 2 and node.attributes.get_int("axis", 0) == 0 else ()


# Operator -> operand -> the axes, of the operand as it is read, that are summed over; () for none that is known.
_SUMMED: Mapping[str, Mapping[int, Callable[[ir.Node, int, int], tuple[int, ...]]]] = {
    "MatMul": {0: _matmul, 1: _matmul},
    "Gemm": {0: _gemm, 1: _gemm},
    "Conv": {1: lambda node, position, rank: tuple(range(1, rank))},
    "ConvTranspose": {1: lambda node, position, rank: (0, *range(2, rank))},
    "Gather": {0: _table},
    **dict.fromkeys(("LSTM", "GRU", "RNN"), dict.fromkeys((1, 2), lambda node, position, rank: (2,))),
}


def prepare_copy(model: Model) -> Model:
    """Return a copy of `model` with constants as initializers, inlined functions and named nodes.

    Inner shapes are inferred anew, since files declare stale ones; the outputs keep theirs.
    """
    copy = model.clone()
    if copy.ir.functions:
        common.InlinePass()(copy.ir)
    common.LiftConstantsToInitializersPass(size_limit=SMALL)(copy.ir)
    common.RemoveInitializersFromInputsPass()(copy.ir)
    copy.ir.ir_version = max(copy.ir.ir_version or 0, 4)  # initializers that are no inputs
    for node in copy.graph.all_nodes():
        node.name = node.name or f"{node.op_type}_{node.outputs[0].name}"
    shape_inference.drop_declared(copy)
    shape_inference.infer(copy)
    keep_outputs(copy, model)
    return copy


def keep_outputs(model: Model, source: Model) -> None:
    """Give the outputs of `model` the types and shapes that `source` declares."""
    for own, declared in zip(model.graph.outputs, source.graph.outputs, strict=True):
        own.type, own.shape = declared.type or own.type, declared.shape or own.shape


def find_weights(model: Model, exclude: Collection[str]) -> Found:
    """Find the weights of products and tables in `model` (of prepare_copy), except those of the nodes `exclude`."""
    found = Found()
    met: set[ir.Value] = set()
    for node in model.graph.all_nodes():
        if node.domain not in _ONNX or node.op_type not in _SUMMED:
            continue
        for position in _SUMMED[node.op_type]:
            value = _constant(node, position)
            if value is None or value in met:
                continue
            met.add(value)
            weight = _weight(value, exclude)
            if isinstance(weight, Weight):
                found.weights.append(weight)
            elif weight:
                found.left[weight] += 1
    return found


def _constant(node: ir.Node, position: int) -> ir.Value | None:
    """Return the initializer of an operand, possibly behind a Transpose."""
    value = node.inputs[position] if position < len(node.inputs) else None
    while value is not None and (maker := value.producer()) is not None and maker.op_type in _MOVES:
        value = maker.inputs[0]
    return value if value is not None and value.is_initializer() and value.const_value is not None else None


_MOVES = ("Transpose", "Identity")


def _weight(value: ir.Value, exclude: Collection[str]) -> Weight | str:
    """Return the weight of `value`, or why it stays; nothing for other values."""
    tensor = value.const_value
    assert tensor is not None
    if tensor.dtype not in FLOATS:
        return "stored in fewer bits already" if tensor.dtype.itemsize < 2 and tensor.size >= SMALL else ""
    if tensor.size < SMALL:
        return f"of fewer than {SMALL} elements"
    uses = tuple(_uses(value, tuple(range(len(tensor.shape)))))
    if value.is_graph_output():
        return "an output of the model"
    if any(use.node.name in exclude for use in uses):
        return "excluded"
    summed = {_summed_axes(use) for use in uses} - {()}
    if not summed or any(use.node.op_type not in _SUMMED for use in uses):
        return f"read by {', '.join(sorted({use.node.op_type for use in uses}))}"
    products = {_summed_axes(use) for use in uses if use.node.op_type != "Gather"} or summed
    if len(products) > 1:
        return "summed over different axes by different operators"
    if not np.isfinite(tensor.numpy()).all():
        return "not finite"
    return Weight(value, uses, Layout(tuple(tensor.shape.numpy()), next(iter(products))))


def _uses(value: ir.Value, order: tuple[int, ...]) -> Iterator[Use]:
    for node, position in value.uses():
        if node.op_type in _MOVES and node.domain in _ONNX and not node.outputs[0].is_graph_output():
            moved = order
            if node.op_type == "Transpose":
                moved = tuple(
                    order[axis] for axis in node.attributes.get_ints("perm", range(len(order))[::-1])
                )
            yield from _uses(node.outputs[0], moved)
        else:
            yield Use(node, position, order)


def _summed_axes(use: Use) -> tuple[int, ...]:
    """Return the axes of the stored weight that the use sums over; () for none."""
    rule = _SUMMED.get(use.node.op_type, {}).get(use.position) if use.node.domain in _ONNX else None
    read = rule(use.node, use.position, len(use.order)) if rule else ()
    return tuple(sorted(use.order[axis] for axis in read))


def count_reasons(found: Found) -> str:
    """Return why weights stay, with counts."""
    return ", ".join(f"{count} {reason}" for reason, count in found.left.most_common())


def format_count(count: int, singular: str) -> str:
    """ "1 weight", "2 weights"."""
    return f"{count} {singular}{'' if count == 1 else 's'}"


def no_weight_error(
    model: Model, found: Found, purpose: str, fix: str = "give a float model"
) -> CannotConvertError:
    """Return the refusal of a model without such weights."""
    reasons = f"they stay for these reasons: {count_reasons(found)}"
    why = reasons if found.left else "no product or table reads a constant"
    return CannotConvertError(f"{model.path} has no weights to {purpose}", why=why, fix=fix)

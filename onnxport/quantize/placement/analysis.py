"""From a float graph to a plan: each node gets a unit, or a reason why it stays float."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxport.quantize.params import QuantizeParams
from onnxport.quantize.placement import operators
from onnxport.quantize.placement.plan import (
    Bias,
    FixedGrid,
    IntegerType,
    Placement,
    Unit,
    Weight,
    drop_isolated_units,
    reasons_of_isolation,
)

# The multiplications per number below which converting costs more than integers save. In ONNX Runtime a conversion
# takes 0.3 ns a number, a multiplication 0.03 ns in floats and half of that in integers on CPUs with VNNI: 20, and more
# where a convolution of floats computes the HardSwish behind it as well.
_PAYS = 24
_DTYPES: Mapping[str, IntegerType] = {"u8": "uint8", "s8": "int8", "s16": "int16"}
EXCLUDED = "excluded by --exclude"


class FloatReasons(Exception):
    """The reasons why nodes stay in float."""


def place(graph: ir.Graph, params: QuantizeParams, *, excluded: Collection[str] = frozenset()) -> Placement:
    """Plan a float graph; nodes inside If and Loop stay in float, as do those named by `excluded`."""
    dtype = "int16" if params.precision == "int16x8" else _DTYPES[params.activations]
    return Placer(graph, dtype, excluded, params.per_tensor).placement()


class Placer:
    """Computes the unit of every node of a graph; `dtype` is that of activations."""

    def __init__(
        self, graph: ir.Graph, dtype: IntegerType, excluded: Collection[str], per_tensor: bool
    ) -> None:
        self._graph, self._dtype, self._per_tensor = graph, dtype, per_tensor
        self._excluded = frozenset(excluded)
        self._folded: set[str] = set()

    def placement(self) -> Placement:
        units: list[Unit] = []
        floats: dict[str, str] = {}
        for node in self._graph:
            name = node.name or ""
            if name in self._folded:
                continue
            try:
                unit = self._unit(node)
            except FloatReasons as reason:
                floats[name] = str(reason)
                continue
            if unit is not None:
                units.append(unit)
                self._folded.update(unit.folded)
        kept = drop_isolated_units(_close_gates(self._graph, _widen_gates(units)))
        floats |= reasons_of_isolation(units, kept)
        order = {node.name: number for number, node in enumerate(self._graph)}
        return Placement(kept, dict(sorted(floats.items(), key=lambda item: order[item[0]])), self._dtype)

    def _unit(self, node: ir.Node) -> Unit | None:
        """Return the node's unit; None for a node without floats. FloatReasons: it computes floats and stays so."""
        if all(value.dtype not in _FLOATS for value in node.outputs):
            return None
        if node.name in self._excluded:
            raise FloatReasons(EXCLUDED)
        if any(value.dtype != ir.DataType.FLOAT for value in node.outputs if value.dtype in _FLOATS):
            raise FloatReasons("it computes in another type than float32")
        if node.domain == "" and node.op_type in operators.PRODUCTS and _is_constant(node.inputs[1]):
            return self._product(node, operators.PRODUCTS[node.op_type])
        if node.domain == "" and node.op_type == "MatMul":
            reads = self._operands(node, 2)
            writes, folded, bounds = self._result(node, folds=False)
            return Unit(node.name or "", node.op_type, reads, writes, folded=folded, bounds=bounds)
        if node.domain == "" and node.op_type in operators.KERNELS:
            return self._kernel(node, operators.KERNELS[node.op_type])
        if any(attribute.type in _GRAPHS for attribute in node.attributes.values()):
            raise FloatReasons("the graphs inside of it stay in float")
        raise FloatReasons(operators.NO_KERNEL)

    # ---- products

    def _product(self, node: ir.Node, product: operators.Product) -> Unit:
        data, weight = node.inputs[0], node.inputs[1]
        assert weight is not None
        assert weight.const_value is not None
        if data is None or _is_constant(data):
            raise FloatReasons("both of its operands are constants")
        if weight.dtype != ir.DataType.FLOAT:
            raise FloatReasons("its weight is not float32")
        axis: int | None = product.axis
        shape = weight.const_value.shape.numpy()
        if node.op_type == "Gemm":
            axis = _axis_of_gemm(node)
        elif node.op_type == "MatMul" and len(shape) != 2:
            axis = None
        bias = self._bias(node, shape[axis] if axis is not None else 1) if product.bias else None
        writes, folded, bounds = self._result(node, folds=True)
        return Unit(
            node.name or "",
            node.op_type,
            (data.name or "",),
            writes,
            Weight(weight.name or "", None if self._per_tensor else axis),
            bias,
            folded=folded,
            is_light=self._dtype != "int16" and _density(node, shape) < _PAYS,
            bounds=bounds,
        )

    def _bias(self, node: ir.Node, channels: int) -> Bias:
        given = node.inputs[2] if len(node.inputs) > 2 else None
        if given is None:
            return Bias(None, channels)
        if given.const_value is None:
            raise FloatReasons("its bias is computed at run time")
        shape = tuple(given.const_value.shape.numpy())
        if math.prod(shape) not in (1, channels) or shape[-1:] not in ((), (1,), (channels,)):
            raise FloatReasons("its bias differs from row to row")
        return Bias(given.name, channels)

    # ---- the rest

    def _kernel(self, node: ir.Node, kernel: operators.Kernel) -> Unit:
        if reason := _misfit_reason(node):
            raise FloatReasons(reason)
        affine = self._affine(node)
        number = len(node.inputs) if kernel.operands is None else kernel.operands
        constants = tuple(
            dict.fromkeys(value.name or "" for value in node.inputs[:number] if value and _is_constant(value))
        )
        if constants and not kernel.constants:
            raise FloatReasons("one of its operands is a constant")
        reads = self._operands(node, number)
        writes, folded, bounds = self._result(node, folds=kernel.folds and affine is None)
        return Unit(
            node.name or "",
            node.op_type,
            reads,
            writes,
            affine=affine,
            needs=tuple(value.name or "" for value in node.inputs if value is not None and _is_map(value))
            if node.op_type in ("Add", "Mul")
            else (),
            constants=constants,
            folded=folded,
            shares=kernel.shares,
            follows=True,
            fixed=kernel.fixed,
            bounds=bounds,
        )

    def _affine(self, node: ir.Node) -> tuple[float, float] | None:
        """Return the Mul or Add of one number that a change of the grid replaces."""
        if node.op_type not in ("Add", "Mul"):
            return None
        constants = [value for value in node.inputs if value is not None and _is_constant(value)]
        others = [value for value in node.inputs if value is not None and not _is_constant(value)]
        if len(constants) != 1 or constants[0].const_value is None or constants[0].const_value.size != 1:
            return None
        (data,), array = others, np.asarray(constants[0].const_value.numpy())
        number = float(array.item())
        if data.shape is None or array.ndim > len(data.shape) or not math.isfinite(number):
            return None
        if node.op_type == "Mul":
            return (number, 0.0) if number > 0 else None
        # Both are to lie on one grid, with both their zeros: whoever else reads the operand would lose by it.
        alone = len(data.uses()) == 1 and not data.is_graph_output()
        limited = self._foldable(node.outputs[0]) is not None
        return (1.0, number) if alone and not limited and self._dtype != "int16" else None

    def _operands(self, node: ir.Node, number: int) -> tuple[str, ...]:
        """Return the activations among the first `number` inputs, each once."""
        found: dict[str, None] = {}
        for value in node.inputs[:number]:
            if value is None:
                raise FloatReasons("an operand is left out")
            if _is_constant(value):
                continue
            if value.dtype != ir.DataType.FLOAT:
                raise FloatReasons("it takes another type than float32")
            found[value.name or ""] = None
        if not found:
            raise FloatReasons("all of its operands are constants")
        return tuple(found)

    def _result(
        self, node: ir.Node, *, folds: bool
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[float, float] | None]:
        """Return the results of a node or of a Relu or Clip behind it, with names and bounds, also its readers'."""
        if not folds or len(node.outputs) != 1:
            return tuple(value.name or "" for value in node.outputs), (), None
        value, folded = node.outputs[0], []
        low, high = -math.inf, math.inf
        while (behind := self._foldable(value)) is not None:
            limiter, (lower, upper) = behind
            low, high = max(low, lower), min(high, upper)
            value = limiter.outputs[0]
            folded.append(limiter.name or "")
        low = max(low, _lower_bound_of_readers(value))
        bounded = folded or math.isfinite(low)
        return (value.name or "",), tuple(folded), (low, high) if bounded else None

    def _foldable(self, value: ir.Value) -> tuple[ir.Node, tuple[float, float]] | None:
        """Return the Relu or Clip that is a value's only reader, and its bounds; None where no such keeps 0."""
        uses = value.uses()
        if value.is_graph_output() or len(uses) != 1:
            return None
        ((node, index),) = uses
        if index != 0 or node.domain != "" or node.name in self._excluded:
            return None
        limits = _limits(node)
        return (node, limits) if limits is not None and limits[0] <= 0 <= limits[1] else None


def _lower_bound_of_readers(value: ir.Value) -> float:
    """Return the bound below which readers do not distinguish values: HardSwish is 0 below -3."""
    readers = [node for node, _ in value.uses()]
    saturate = all(node.domain == "" and node.op_type == "HardSwish" for node in readers)
    return -3.0 if readers and saturate and not value.is_graph_output() else -math.inf


def _widen_gates(units: Sequence[Unit]) -> list[Unit]:
    """Give units whose result is a gate a grid of their whole range.

    A clipped gate scales down the largest values that it lets through, which no measure of its own shows.
    """
    readers: dict[str, list[Unit]] = {}
    for unit in units:
        for name in unit.reads:
            readers.setdefault(name, []).append(unit)

    def is_gate(name: str) -> bool:
        users = readers.get(name, [])
        return bool(users) and all(
            is_gate(user.writes[0]) if user.affine is not None else user.op == "Mul" and len(user.reads) > 1
            for user in users
        )

    return [
        replace(unit, fixed=FixedGrid(*unit.bounds))
        if unit.bounds is not None
        and math.isfinite(unit.bounds[1] - unit.bounds[0])
        and is_gate(unit.writes[0])
        else unit
        for unit in units
    ]


def _close_gates(graph: ir.Graph, units: Sequence[Unit]) -> list[Unit]:
    """Bound what only x * Sigmoid(x) reads: where the gate is less than half its step, the product is 0."""
    values = {value.name: value for node in graph for value in node.outputs}
    gates = {unit.reads[0] for unit in units if unit.op == "Sigmoid"}
    return [
        replace(unit, closed=(_CLOSED, math.inf))
        if unit.bounds is None
        and unit.writes
        and unit.writes[0] in gates
        and _is_only_gated(values[unit.writes[0]])
        else unit
        for unit in units
    ]


def _is_only_gated(value: ir.Value) -> bool:
    """Return whether a value is read by Sigmoids and products with their results alone."""
    readers = [node for node, _ in value.uses()]
    gates = {node.outputs[0] for node in readers if node.op_type == "Sigmoid"}
    products = [node for node in readers if node.op_type == "Mul"]
    return (
        not value.is_graph_output()
        and len(gates) + len(products) == len(readers)
        and all(any(operand in gates for operand in node.inputs) for node in products)
        and all(user in products and not gate.is_graph_output() for gate in gates for user, _ in gate.uses())
    )


_CLOSED = -math.log(2 * 256 - 1)  # where Sigmoid is 1/512, half a step of its grid


_FLOATS = frozenset((ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16))


_GRAPHS = frozenset((ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS))


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and not value.is_graph_input()


def _is_map(value: ir.Value) -> bool:
    """Return whether an activation has more than one number per channel: else quantizing it saves nothing."""
    if value.const_value is not None:
        return False
    dims = value.shape[2:] if value.shape is not None else (0,)
    return len(dims) == 0 or any(dim != 1 for dim in dims)


def _limits(node: ir.Node) -> tuple[float, float] | None:
    """Return the bounds of a Relu or Clip; None for other nodes and computed bounds."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    if node.op_type != "Clip":
        return None
    bounds = [-math.inf, math.inf]
    for number, value in enumerate(node.inputs[1:3]):
        if value is None:
            continue
        if value.const_value is None:
            return None
        bounds[number] = float(np.asarray(value.const_value.numpy()).item())
    return bounds[0], bounds[1]


def _density(node: ir.Node, weight: Sequence[int]) -> float:
    """Return how many numbers a product multiplies for each that it reads or writes, at any size of its input."""
    if node.op_type != "Conv":
        inner, outer = weight[-2:] if len(weight) > 1 else (weight[0], 1)
        return inner * outer / (inner + outer)
    read = (
        weight[1] * node.attributes.get_int("group", 1) * math.prod(node.attributes.get_ints("strides", ()))
    )
    return math.prod(weight[1:]) / (1 + read / weight[0])


def _axis_of_gemm(node: ir.Node) -> int:
    """Return the channel axis of a Gemm's weight; FloatReasons: a form that no integer kernel has."""
    if node.attributes.get_int("transA", 0):
        raise FloatReasons("it transposes its first operand")
    if node.attributes.get_float("alpha", 1.0) != 1 or node.attributes.get_float("beta", 1.0) != 1:
        raise FloatReasons("its alpha or beta is not 1")
    return 0 if node.attributes.get_int("transB", 0) else 1


def _misfit_reason(node: ir.Node) -> str:
    """Return why this node has no integer kernel although its operator has one; empty where it has."""
    if node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") != "nearest":
        return "it interpolates, which ONNX Runtime does in float"
    if node.op_type == "MaxPool" and len(node.outputs) > 1:
        return "it gives indices, too"
    return ""

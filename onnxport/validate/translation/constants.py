"""The constants of a graph: what is stored, and what follows from that alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.validate.translation.rounding_bounds import Rounded, dequantize, is_float

# Elements of a result that is folded by onnx's reference implementation, which is slow.
_FOLDED = 1 << 22
# Their results are numbers that they read.
_MOVES = frozenset("Unsqueeze Squeeze Flatten Slice Gather Expand Concat Tile Split".split())
_MONOTONE = frozenset("Sqrt Exp Log Reciprocal Sigmoid Tanh".split())
# Their results differ from run to run, or are no tensors.
_NEVER = frozenset(
    "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli If Loop Scan".split()
)

_WITHOUT_OPERANDS = _NEVER | {"Constant", "Shape"}


class Constants:
    """The constants of one graph; a value is folded once.

    Args:
        opset: of the default domain.
        rounding: the float type of 16 bits that an artefact may round these to, once each; empty for none.
    """

    def __init__(self, opset: int, rounding: str = "") -> None:
        self._opset, self._rounding = opset, rounding
        self._found: dict[ir.Value, Rounded | None] = {}

    def get(self, value: ir.Value | None) -> Rounded | None:
        """Return the constant that `value` is; None for a computed or missing one."""
        if value is None:
            return None
        pending = [value]  # operands first: graphs are deeper than Python recurses
        while pending:
            if operands := self._unfolded_operands(pending[-1]):
                pending += operands
                continue
            last = pending.pop()
            if last not in self._found:
                self._found[last] = self._fold(last)
        return self._found[value]

    def _unfolded_operands(self, value: ir.Value) -> list[ir.Value]:
        """Return the operands that folding `value` asks for and that were not folded yet."""
        node = value.producer()
        if value in self._found or node is None or node.op_type in _WITHOUT_OPERANDS:
            return []
        return [each for each in node.inputs if each is not None and each not in self._found]

    def number(self, value: ir.Value | None) -> float | None:
        """Return a constant of one element."""
        found = self.get(value)
        return float(found.values.reshape(-1)[0]) if found is not None and found.is_scalar else None

    def _fold(self, value: ir.Value) -> Rounded | None:
        node = value.producer()
        if node is None:
            stored = value.const_value
            return None if stored is None or value.is_graph_input() else self._stored(stored.numpy())
        if node.op_type == "Constant":
            tensor = constant_tensor(value)
            return None if tensor is None else self._stored(tensor.numpy())
        if node.op_type == "Shape":
            return _static_shape(node)
        if node.op_type in _NEVER or not any(each is not None for each in node.inputs):
            return None
        operands = [self.get(each) for each in node.inputs]
        if any(each is not None and found is None for each, found in zip(node.inputs, operands, strict=True)):
            return None
        fold = _FOLDS.get(node.op_type) if node.domain == "" else None
        if fold is not None:
            return fold(node, operands)
        return self._evaluate(node, operands, node.outputs.index(value))

    def _stored(self, array: Array) -> Rounded:
        found = Rounded.exact(array)
        return found.spread(self._rounding) if self._rounding and found.is_float else found

    def _evaluate(self, node: ir.Node, operands: list[Rounded | None], index: int) -> Rounded | None:
        """Fold a node by onnx's reference implementation; of rounded numbers, moves and monotone functions."""
        known = [each for each in operands if each is not None]
        if node.domain or any(each.values.size > _FOLDED for each in known):
            return None
        run = partial(self._run, node, index)
        if all(each.is_exact for each in known):
            values = run(operands)
            return None if values is None else self._stored(values)
        if node.op_type in _MOVES:
            return _of_parts(run, operands)
        if node.op_type in _MONOTONE:
            return _of_ends(run, operands)
        values = run(operands) if self._rounding else None
        return None if values is None else self._stored(values)

    def _run(self, node: ir.Node, index: int, operands: Sequence[Rounded | None]) -> Array | None:
        # A Rounded holds float32 as float64.
        feeds: dict[str, Array] = {
            f"i{place}": each.values.astype(np.float32 if each.is_float else each.values.dtype)
            for place, each in enumerate(operands)
            if each is not None
        }
        names = [f"i{place}" if each is not None else "" for place, each in enumerate(operands)]
        proto = onnx.helper.make_node(
            node.op_type, names, [f"o{place}" for place in range(len(node.outputs))]
        )
        proto.attribute.extend(ir.to_proto(each) for each in node.attributes.values())
        graph = onnx.helper.make_graph(
            [proto],
            "folded",
            [onnx.helper.make_tensor_value_info(each, _element_type(feeds[each]), None) for each in feeds],
            [onnx.ValueInfoProto(name=name) for name in proto.output],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self._opset)])
        try:
            results: Any = ReferenceEvaluator(model).run(None, feeds)
            return np.asarray(results[index])
        except Exception:  # whatever the implementation raises for what it does not know
            return None


_Run = Callable[[Sequence[Rounded | None]], Array | None]


def _of_parts(run: _Run, operands: Sequence[Rounded | None]) -> Rounded | None:
    """Return a result whose elements are those of the operands: numbers, half steps and ends move alike."""

    def moved(part: Callable[[Rounded], Array]) -> Array | None:
        chosen = [
            each
            if each is None or not each.is_float
            else Rounded(np.broadcast_to(part(each), each.values.shape))
            for each in operands
        ]
        return run(chosen)

    values = moved(lambda each: each.values)
    half = moved(lambda each: each.half.astype(np.float64))
    ends = moved(lambda each: each.ends.astype(np.float64))
    if values is None or half is None or ends is None:
        return None
    return Rounded(values.astype(np.float64), half.astype(np.float64), ends.astype(np.int8))


def _of_ends(run: _Run, operands: Sequence[Rounded | None]) -> Rounded | None:
    """Return a monotone function of one operand, with what half a step of that moves it."""
    (operand,) = operands
    assert operand is not None
    results = [run([Rounded(operand.values + sign * operand.half)]) for sign in (0, -1, 1)]
    found = [each.astype(np.float64) for each in results if each is not None]
    if len(found) < len(results):
        return None
    values, *others = found
    half = np.max([np.abs(each - values) for each in others], axis=0)
    return Rounded(values, half) if np.isfinite(half).all() else None


def find_constants(graph: ir.Graph) -> set[ir.Value]:
    """Return the computed values that follow from constants alone, or from sizes that are known."""
    found: set[ir.Value] = set()
    for node in graph:
        operands = [each for each in node.inputs if each is not None]
        if node.op_type == "Constant":
            is_constant = True
        elif node.op_type == "Shape":
            is_constant = bool(operands) and operands[0].shape is not None and operands[0].shape.is_static()
        else:
            is_known = all(each in found or is_stored(each) for each in operands)
            is_constant = node.op_type not in _NEVER and bool(operands) and is_known
        if is_constant:
            found.update(node.outputs)
    return found


def is_stored(value: ir.Value) -> bool:
    """Return whether a value is an initializer that no caller replaces."""
    return value.producer() is None and value.const_value is not None and not value.is_graph_input()


def _element_type(array: Array) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def _static_shape(node: ir.Node) -> Rounded | None:
    """Return the result of Shape where no dimension is open."""
    value = node.inputs[0]
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(value.shape))
    return Rounded(np.array(value.shape.numpy()[start:end], np.int64))


def broadcast_along(values: Array, axis: int, rank: int, block: int = 0, length: int = 0) -> Array:
    """Return scales or zero points in a shape that broadcasts with a tensor of `rank` dimensions.

    Args:
        block: elements along `axis` that share one (ONNX DequantizeLinear-21); 0 for one per index.
        length: of `axis`, for blocks.
    """
    if values.size == 1 and values.ndim <= 1:
        return values.reshape(())
    if block:
        repeated = np.repeat(values, block, axis)
        return np.take(repeated, np.arange(length), axis)
    if values.ndim > 1:
        return values
    return values.reshape([-1 if each == axis % rank else 1 for each in range(rank)])


def _dequantize(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    """ONNX DequantizeLinear-21."""
    codes, scale, *rest = operands
    assert codes is not None
    assert scale is not None
    zero = rest[0].values if rest and rest[0] is not None else np.zeros((), np.int8)
    if is_float(codes.values):
        return None  # float8
    axis, block = node.attributes.get_int("axis", 1), node.attributes.get_int("block_size", 0)
    rank = codes.values.ndim
    length = codes.values.shape[axis] if block else 0
    scales, zeros = (
        broadcast_along(each, axis, rank, block, length) for each in (scale.values, np.asarray(zero))
    )
    found = dequantize(codes.values, scales, zeros)
    if scale.is_exact:
        return found
    halves = broadcast_along(np.broadcast_to(scale.half, scale.values.shape), axis, rank, block, length)
    return Rounded(
        found.values, found.half + np.abs(codes.values - zeros.astype(np.float64)) * halves, found.ends
    )


def _add(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    first, second = _two(operands)
    return first.plus(second) if first.is_float else Rounded(first.values + second.values)


def _subtract(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    first, second = _two(operands)
    if not first.is_float:
        return Rounded(first.values - second.values)
    return first.plus(second.times(Rounded.number(-1)))


def _multiply(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    first, second = _two(operands)
    return first.times(second) if first.is_float else Rounded(first.values * second.values)


def _two(operands: list[Rounded | None]) -> tuple[Rounded, Rounded]:
    first, second = operands
    assert first is not None
    assert second is not None
    return first, second


def _cast(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    (operand,) = operands
    assert operand is not None
    target = ir.DataType(node.attributes.get_int("to", 1))
    if target in _NARROW and operand.is_float:
        return operand.narrowed(target.name.lower())
    if target in _FLOATS:
        return Rounded(operand.values.astype(np.float64), operand.half, operand.ends)
    if target == ir.DataType.STRING:
        return None
    return Rounded(operand.values.astype(target.numpy()))


_NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _identity(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    return operands[0]


def _transpose(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    assert operands[0] is not None
    order = node.attributes.get_ints("perm", ()) or tuple(range(operands[0].values.ndim))[::-1]
    return operands[0].moved(lambda values: values.transpose(order))


def _reshape(node: ir.Node, operands: list[Rounded | None]) -> Rounded | None:
    data, shape = _two(operands)
    wanted = [int(each) for each in shape.values]
    if not node.attributes.get_int("allowzero", 0):
        wanted = [data.values.shape[i] if each == 0 else each for i, each in enumerate(wanted)]
    return data.moved(lambda values: values.reshape(wanted))


_FOLDS: Mapping[str, Callable[[ir.Node, list[Rounded | None]], Rounded | None]] = {
    "DequantizeLinear": _dequantize,
    "Add": _add,
    "Sub": _subtract,
    "Mul": _multiply,
    "Cast": _cast,
    "Identity": _identity,
    "Transpose": _transpose,
    "Reshape": _reshape,
}

"""Activations: merged bounds, and formulas that are one operator."""

from __future__ import annotations

from math import inf, isclose

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.gelu_fusion import fuse_gelu
from onnxport.optimizers.patterns import (
    array,
    axes_of,
    is_op,
    number,
    only_use,
    producer,
    rank_of,
    scalar_operand,
)
from onnxport.optimizers.simplification.graph import ModelEditor, bypass, rewrite, simplification

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


@simplification("merge-activations")
def merge_activations(editor: ModelEditor) -> int:
    """Replace a chain of Relu and Clip by one; remove Relu of a value that is never negative.

    Keeps: Computed bounds.
    """
    merged = 0
    for node in editor.nodes("Relu", "Clip"):
        before = producer(node.inputs[0])
        if before is None or node.outputs[0].dtype not in _FLOATS:
            continue  # the least integer has no absolute value
        bounds = _bounds(node)
        had = _bounds(before) if is_op(before, "Relu", "Clip") else _RANGES.get(before.op_type)
        if bounds is None or had is None:
            continue
        if bounds[0] <= had[0] and bounds[1] >= had[1]:
            merged += bypass(node, node.inputs[0])
        elif is_op(before, "Relu", "Clip") and only_use(node.inputs[0]):
            merged += _merge_bounds(editor, node, before, bounds, had)
    return merged


def _merge_bounds(
    editor: ModelEditor, node: ir.Node, before: ir.Node, bounds: tuple[float, float], had: tuple[float, float]
) -> int:
    """Make one Clip of Clip(Relu) or Clip(Clip); bounds are operands since opset 11."""
    low, high = (min(max(bound, had[0]), had[1]) for bound in bounds)
    dtype = node.outputs[0].dtype
    if dtype is None or editor.opset < 11 or low > high:
        return 0
    result = node.outputs[0].name
    operands = [
        None
        if abs(bound) == inf
        else editor.constant(node, np.array(bound, dtype.numpy()), f"{result}.{name}")
        for name, bound in (("min", low), ("max", high))
    ]
    return rewrite(node, "Clip", [before.inputs[0], *(operands if operands[1] is not None else operands[:1])])


def _bounds(node: ir.Node) -> tuple[float, float] | None:
    """Return the bounds of a Relu or Clip; None if computed."""
    if node.op_type == "Relu":
        return 0.0, inf
    found = []
    for index, name, free in ((1, "min", -inf), (2, "max", inf)):
        value = node.inputs[index] if len(node.inputs) > index else None
        if name in node.attributes:
            found.append(node.attributes[name].as_float())
        elif value is None:
            found.append(free)
        elif (bound := number(value)) is not None:
            found.append(bound)
        else:
            return None
    return found[0], found[1]


# Operator -> bounds of its result; 0 and infinity are exact in every type.
_RANGES = {
    **dict.fromkeys(("HardSigmoid", "Sigmoid", "Softmax"), (0.0, 1.0)),
    **dict.fromkeys(("Abs", "Exp"), (0.0, inf)),
}


@simplification("fuse-hard-swish")
def fuse_hard_swish(editor: ModelEditor) -> int:
    """Replace Clip(x + 3, 0, 6) / 6 by HardSigmoid, and x times that by HardSwish where the opset has it (14).

    Keeps: Constants that raise the rank.
    """
    fused = 0
    for node in editor.nodes("Div", "Mul"):
        value, factor = _split_scale(node)
        if (x := _clipped_operand(value)) is not None and _is_sixth(factor):
            fused += rewrite(node, "HardSigmoid", [x], {"alpha": 1 / 6, "beta": 0.5})
    fused += sum(_scaled_product(editor, node) for node in editor.nodes("Div", "Mul"))
    for node in editor.nodes("Mul") if editor.opset >= 14 else ():
        for x, gate in (node.inputs, reversed(node.inputs)):
            sigmoid = producer(gate, "HardSigmoid")
            if sigmoid is None or sigmoid.inputs[0] is not x or not only_use(gate):
                continue
            beta = sigmoid.attributes.get_float("beta", 0.5)
            if _is_sixth(sigmoid.attributes.get_float("alpha", 0.2)) and beta == 0.5:
                fused += rewrite(node, "HardSwish", [x])
                break
    return fused


def _is_sixth(factor: float | None) -> bool:
    return factor is not None and isclose(factor, 1 / 6, rel_tol=1e-6)


def _scaled_product(editor: ModelEditor, node: ir.Node) -> int:
    """Fuse x * Clip(x + 3, 0, 6) / 6."""
    value, factor = _split_scale(node)
    product = producer(value, "Mul")
    if product is None or not _is_sixth(factor) or not only_use(value):
        return 0
    for x, clipped in (product.inputs, reversed(product.inputs)):
        if x is not None and _clipped_operand(clipped) is x and only_use(clipped):
            if editor.opset >= 14:
                return rewrite(node, "HardSwish", [x])
            attributes = {"alpha": 1 / 6, "beta": 0.5}
            gate = editor.insert(node, "HardSigmoid", [x], attributes, node.outputs[0].shape)
            return rewrite(node, "Mul", [x, gate])
    return 0


def _split_scale(node: ir.Node) -> tuple[ir.Value | None, float | None]:
    """Return the operand and the factor of a Mul or Div by one number."""
    first, second = node.inputs
    factor = scalar_operand(node, 1)
    if node.op_type == "Div":
        return first, None if not factor else 1 / factor
    return (first, factor) if factor is not None else (second, scalar_operand(node, 0))


def _clipped_operand(value: ir.Value | None) -> ir.Value | None:
    """Return x of Clip(x + 3, 0, 6)."""
    clip = producer(value, "Clip")
    total = None if clip is None or _bounds(clip) != (0.0, 6.0) else producer(clip.inputs[0], "Add")
    if total is None or total.outputs[0].dtype not in _FLOATS:
        return None
    first, second = total.inputs
    if scalar_operand(total, 1) == 3.0:
        return first
    return second if scalar_operand(total, 0) == 3.0 else None


@simplification("fuse-gelu")
def fuse_gelu_pattern(editor: ModelEditor) -> int:
    """Replace x * (1 + erf(x / sqrt 2)) / 2 by Gelu where the opset has it (20).

    Keeps: Constants that raise the rank.
    """
    if editor.opset < 20:
        return 0
    before = sum(1 for _ in editor.model.graph)
    fuse_gelu(editor.model)
    return int(sum(1 for _ in editor.model.graph) != before)


@simplification("fuse-layer-normalization")
def fuse_layer_normalization(editor: ModelEditor) -> int:
    """Replace the formula of LayerNormalization over the last axis by the operator where the opset has it (17).

    Keeps: Float16, in which formula and operator round differently; constants that raise the rank.
    """
    if editor.opset < 17:
        return 0
    return sum(_layer_normalization(editor, node) for node in editor.nodes("Div"))


def _layer_normalization(editor: ModelEditor, node: ir.Node) -> int:
    """Fuse (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon), with a scale and a bias behind it."""
    centered, root = producer(node.inputs[0], "Sub"), producer(node.inputs[1], "Sqrt")
    total = None if root is None else producer(root.inputs[0], "Add")
    if centered is None or total is None:
        return 0
    x = centered.inputs[0]
    average = producer(centered.inputs[1], "ReduceMean")
    epsilon = next((each for index in (0, 1) if (each := scalar_operand(total, index)) is not None), None)
    variance = next((found for value in total.inputs if (found := producer(value, "ReduceMean"))), None)
    square = None if variance is None else producer(variance.inputs[0], "Pow", "Mul")
    if x is None or average is None or variance is None or square is None or epsilon is None:
        return 0
    squared = square.inputs[0] is node.inputs[0] and (
        square.inputs[1] is node.inputs[0] if square.op_type == "Mul" else scalar_operand(square, 1) == 2.0
    )
    rank = rank_of(x)
    if average.inputs[0] is not x or not squared or rank is None or x.dtype != ir.DataType.FLOAT:
        return 0
    for mean in (average, variance):
        if axes_of(mean) not in ([-1], [rank - 1]) or not mean.attributes.get_int("keepdims", 1):
            return 0
    size = None if x.shape is None else x.shape[-1]
    last, scale = _affine_step(node, "Mul", size)
    bias = None
    if scale is not None:
        last, bias = _affine_step(last, "Add", size)
    elif isinstance(size, int):  # the operator requires a scale
        scale = editor.constant(node, np.ones(size, np.float32), f"{x.name}.ones")
    else:
        return 0
    operands = [x, scale] if bias is None else [x, scale, bias]
    return rewrite(last, "LayerNormalization", operands, {"axis": -1, "epsilon": epsilon})


def _affine_step(node: ir.Node, op: str, size: object) -> tuple[ir.Node, ir.Value | None]:
    """Return the only reader of a node and its constant, if it is `op` with a vector of `size` elements."""
    result = node.outputs[0]
    if not only_use(result):
        return node, None
    (user,) = result.consumers()
    if not is_op(user, op):
        return node, None
    other = user.inputs[1] if user.inputs[0] is result else user.inputs[0]
    constant = array(other)
    return (user, other) if constant is not None and constant.shape == (size,) else (node, None)

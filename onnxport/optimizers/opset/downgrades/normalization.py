"""Softmax, Dropout and the normalizations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, lowers, required

_FLOAT, _DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE


@lowers("Softmax", "LogSoftmax", "Hardmax", version=13)
def softmax(node: Node) -> None:
    """Move the axis to the end: before, all axes from `axis` on were taken as one.

    For the last axis, or if all axes behind it have one element, the forms are equal.
    """
    axis = node.attribute("axis", -1)
    shape = node.shape(node.x)
    if shape is None and axis != -1:
        raise NoForm(f"the rank of its input {node.x.name!r} is unknown, so its axis may not be the last")
    if shape is None or all(size == 1 for size in shape[axis % len(shape) + 1 :]):
        node.put(axis=axis)
        return
    order = list(range(len(shape)))
    order[axis % len(shape)], order[-1] = order[-1], order[axis % len(shape)]
    node.put_input(0, node.before("Transpose", node.x, perm=order))
    node.put(axis=-1)
    node.after(0, "Transpose", perm=order)


@lowers("BatchNormalization", version=14)
def batch_normalization(node: Node) -> None:
    """Write training mode as more outputs: mean, variance, saved mean and saved variance."""
    if not node.take("training_mode", 0):
        return
    node.ir.resize_outputs(5)
    for index, what in enumerate(("y", "mean", "var", "saved_mean", "saved_var")):
        node.name_output(index, what)


@lowers("LayerNormalization", version=17)
def layer_normalization(node: Node) -> None:
    """Write (x - mean) / deviation * scale + bias; ONNX's definition with the mean of squares cancels."""
    x, axes = node.x, _last_axes(node)
    wide = _cast_to_float(node, x)
    mean = node.before("ReduceMean", wide, axes=axes)
    centred = node.before("Sub", wide, mean)
    variance = node.before("ReduceMean", node.before("Mul", centred, centred), axes=axes)
    deviation = _root(node, variance)
    scaled = _scale(node, node.before("Div", centred, deviation), x)
    for index, statistic in ((1, mean), (2, deviation)):
        if node.uses_output(index):
            value = node.before("Identity", statistic) if index == 1 else node.before("Reciprocal", statistic)
            node.hand_over(index, value)
    node.drop_outputs(1)
    bias = node.input(2)
    if bias is None:
        node.become("Identity", scaled)
    else:
        node.become("Add", scaled, bias)


@lowers("RMSNormalization", version=23)
def rms_normalization(node: Node) -> None:
    """Write x / sqrt(mean(x^2)) * scale."""
    x, axes = node.x, node.constant(_last_axes(node))
    wide = _cast_to_float(node, x)
    deviation = _root(node, node.before("ReduceMean", node.before("Mul", wide, wide), axes))
    node.become("Identity", _scale(node, node.before("Div", wide, deviation), x))


def _last_axes(node: Node) -> list[int]:
    """Return the axes from `axis` on, counted from the back where that needs no rank."""
    axis = node.attribute("axis", -1)
    shape = node.shape(node.x)
    if axis >= 0 and shape is None:
        raise NoForm(f"the rank of its input {node.x.name!r} is unknown, and so are its axes")
    return list(range(axis, 0)) if shape is None or axis < 0 else list(range(axis, len(shape)))


def _cast_to_float(node: Node, x: ir.Value) -> ir.Value:
    """Cast to float32, in which statistics are computed (stash_type), unless x is double."""
    dtype = node.dtype(x)
    if dtype is None:
        raise NoForm(f"the type of its input {x.name!r} is not known")
    return x if dtype in (_FLOAT, _DOUBLE) else node.before("Cast", x, to=int(_FLOAT))


def _root(node: Node, variance: ir.Value) -> ir.Value:
    dtype = _DOUBLE if node.dtype(node.x) == _DOUBLE else _FLOAT
    epsilon = node.constant(node.attribute("epsilon", 1e-5), dtype)
    return node.before("Sqrt", node.before("Add", variance, epsilon))


def _scale(node: Node, normal: ir.Value, x: ir.Value) -> ir.Value:
    """Cast back to the type of x and multiply by the scale."""
    dtype = node.dtype(x)
    if dtype is not None and dtype not in (_FLOAT, _DOUBLE):
        normal = node.before("Cast", normal, to=int(dtype))
    return node.before("Mul", normal, required(node.input(1)))


@lowers("Dropout", version=12)
def dropout(node: Node) -> None:
    """Drop `training_mode`; the mask is True where nothing is dropped, and False in ONNX Runtime's older one."""
    training = node.input(2)
    if training is not None:
        flag = node.array(training)
        if flag is None or flag.any():
            raise NoForm("its older form has no training_mode")
    node.take("seed")
    rest = [value for value in node.ir.inputs[1:] if value is not None]
    node.ir.resize_inputs(1)
    for value in rest:
        node.forget(value)
    if node.uses_output(1):
        shape = node.before("Shape", node.x)
        node.hand_over(1, node.before("ConstantOfShape", shape, value=ir.tensor(np.array([True]))))
    node.drop_outputs(1)

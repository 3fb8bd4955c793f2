"""Inputs that were attributes before, and attributes that may be dropped or that have no older form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, lowers, required
from onnxport.optimizers.opset.upgrade_adapters import MOVED

# ReduceX without axes under noop_with_empty_axes gives x itself; of the others versions of ONNX disagree.
_NOTHING_TO_REDUCE = {f"Reduce{kind}" for kind in ("Max", "Mean", "Min", "Prod", "Sum")}


def _moves_back(op_type: str, version: int, name: str, index: int) -> None:
    @lowers(op_type, version=version)
    def move(node: Node) -> None:
        value = node.input(index)
        if value is None:
            values = None
        elif (array := node.array(value)) is None:
            raise NoForm(f"its {name} are computed at run time; before opset {version} they are an attribute")
        else:
            values = [int(each) for each in np.ravel(array)]
        if op_type.startswith("Reduce") and not values and node.attribute("noop_with_empty_axes", 0):
            if op_type not in _NOTHING_TO_REDUCE:
                raise NoForm("it reduces no axis, which its older form cannot express")
            node.become("Identity", node.x)
            return
        node.take("noop_with_empty_axes")
        if values:
            node.put(**{name: values})
        node.drop_input(index)


for (_op_type, _version), _places in MOVED.items():
    if _version > 11 and _op_type != "Split":  # whose sizes at run time have a form (tensors.py)
        for _name, _index in _places.items():
            _moves_back(_op_type, _version, _name, _index)


@lowers("Constant", version=12)
def constant(node: Node) -> None:
    """Write numbers, lists and strings as tensors."""
    for name in ("value_int", "value_ints", "value_float", "value_floats", "value_string", "value_strings"):
        if name in node.ir.attributes:
            dtype = {"int": np.int64, "float": np.float32, "string": object}[name[6:].rstrip("s")]
            node.put(value=ir.tensor(np.array(node.take(name), dtype)))


def _refuses(op_type: str, version: int, name: str, values: Sequence[str], why: str) -> None:
    @lowers(op_type, version=version)
    def check(node: Node) -> None:
        if (value := node.attribute(name)) in values:
            raise NoForm(why.format(value))


_refuses("Pad", 19, "mode", ("wrap",), "the mode wrap came with opset 19")
_refuses("Resize", 19, "coordinate_transformation_mode", ("half_pixel_symmetric",), "{} came with opset 19")
for _op_type in ("ScatterElements", "ScatterND"):
    _refuses(_op_type, 18, "reduction", ("max", "min"), "its reduction={} came with opset 18")


@lowers("GroupNormalization", version=21)
def group_normalization(node: Node) -> None:
    raise NoForm("its scale and bias are per channel, and were per group")


@lowers("AveragePool", version=19)
@lowers("LpPool", version=18)
def no_dilations(node: Node) -> None:
    """Drop dilations of 1."""
    if set(node.attribute("dilations", [1])) == {1}:
        node.take("dilations")


@lowers("Reshape", version=14)
def reshape_zero(node: Node) -> None:
    """Drop `allowzero`; under it, a size of 0 is a size, and not a copy of the input's.

    PyTorch's exporter sets it at every Reshape. A computed shape holds a 0 for an empty input only; a graph input
    may hold anything.
    """
    if not node.attribute("allowzero", 0):
        return
    value = required(node.input(1))
    shape = node.array(value)
    if value.is_graph_input() or (shape is not None and (shape == 0).any()):
        raise NoForm("its shape may hold a size of 0 (allowzero), which the older form cannot express")
    if shape is None:
        node.remark("run-time shapes of Reshape nodes with allowzero are assumed to hold no size of 0")
    node.take("allowzero")

"""A node under conversion to another opset: what an adapter may read and change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxport.formats.constant_tensors import constant_tensor
from onnxport.optimizers.opset.type_inference import InferredTypes

_CAST_LIKE_SINCE = 15


# A function that converts a node in place. It raises NoForm, before any change, if the other form cannot express it.
Adapter = Callable[["Node"], None]
# Of an operator and a version: from the form before it to its form, and back.
ADAPTERS: dict[tuple[str, int], Adapter] = {}
LOWERINGS: dict[tuple[str, int], Adapter] = {}


def adapts(*op_types: str, version: int) -> Callable[[Adapter], Adapter]:
    """Register the adapter of the operators from their last form before `version` to that of `version`."""
    return _register(ADAPTERS, op_types, version)


def lowers(*op_types: str, version: int) -> Callable[[Adapter], Adapter]:
    """Register the lowering of the operators from the form of `version` to that of the version before.

    It may turn the node into another operator. Otherwise the result is checked against the older schema.
    """
    return _register(LOWERINGS, op_types, version)


def _register(
    table: dict[tuple[str, int], Adapter], op_types: Iterable[str], version: int
) -> Callable[[Adapter], Adapter]:
    def register(adapter: Adapter) -> Adapter:
        for op_type in op_types:
            if table.setdefault((op_type, version), adapter) is not adapter:
                raise ValueError(f"{op_type} has two adapters for opset {version}")
        return adapter

    return register


class NoForm(Exception):
    """The node has no form at the requested opset; the text gives the reason."""


class Change:
    """The state that all adapters of one conversion share: target opset, inferred types, used names.

    Attributes:
        holds_constants: the graph may have initializers; a function's may not.
        changed: the nodes that an adapter touched.
        made: the nodes that adapters made.
        remarks: notes for the user, each once.
    """

    def __init__(
        self, model: ir.Model, to: int, known: InferredTypes, *, holds_constants: bool = True
    ) -> None:
        self.graph = model.graph
        self.to = to
        self.known = known
        self.holds_constants = holds_constants
        self.changed: set[ir.Node] = set()
        self.made: set[ir.Node] = set()
        self.remarks: dict[str, None] = {}
        # A subgraph's value may not shadow one outside (ONNX IR, Graphs).
        values = [
            value for graph in model.graphs() for value in (*graph.inputs, *graph.initializers.values())
        ]
        values += [value for node in model.graph.all_nodes() for value in node.outputs]
        self._names = {value.name for value in values} | {node.name for node in model.graph.all_nodes()}

    def free_name(self, wish: str) -> str:
        name, count = wish, 1
        while name in self._names:
            name, count = f"{wish}_{count}", count + 1
        self._names.add(name)
        return name


class Node:
    """A node with the reads and edits of an adapter."""

    def __init__(self, node: ir.Node, change: Change) -> None:
        self.ir = node
        self._change = change

    @property
    def x(self) -> ir.Value:
        """Return the first input."""
        value = self.input(0)
        if value is None:
            raise NoForm("its first input is missing")
        return value

    def input(self, index: int) -> ir.Value | None:
        return self.ir.inputs[index] if index < len(self.ir.inputs) else None

    def uses_output(self, index: int) -> bool:
        if index >= len(self.ir.outputs):
            return False
        value = self.ir.outputs[index]
        return bool(value.uses()) or value.is_graph_output()

    def attribute(self, name: str, default: Any = None) -> Any:
        attribute = self.ir.attributes.get(name)
        return default if attribute is None else _resolve(attribute).value

    def type(self, value: ir.Value) -> ir.TypeProtocol | None:
        return self._change.known.type(value)

    def dtype(self, value: ir.Value) -> ir.DataType | None:
        return self._change.known.dtype(value)

    def shape(self, value: ir.Value) -> list[int | None] | None:
        """Return sizes that hold for every input, None for an open one; None if the rank is unknown."""
        return self._change.known.shape(value)

    def array(self, value: ir.Value | None) -> npt.NDArray[Any] | None:
        """Return the value of a constant; None for a computed value."""
        if value is None or value.is_graph_input():
            return None
        tensor = constant_tensor(value)
        return None if tensor is None else tensor.numpy()

    def take(self, name: str, default: Any = None) -> Any:
        """Remove an attribute and return its value."""
        if name not in self.ir.attributes:
            return default
        self._change.changed.add(self.ir)
        return _resolve(self.ir.attributes.pop(name)).value

    def demand(self, name: str) -> Any:
        """Remove a required attribute and return its value."""
        if name not in self.ir.attributes:
            raise NoForm(f"its attribute {name!r} is missing, which the model's opset requires")
        return self.take(name)

    def put(self, **attributes: Any) -> None:
        """Set attributes; one that already has its value changes nothing."""
        for name, value in attributes.items():
            if name not in self.ir.attributes or self.ir.attributes[name].value != value:
                self.ir.attributes.add(ir.convenience.convert_attribute(name, value))
                self._change.changed.add(self.ir)

    def put_input(self, index: int, value: ir.Value | None) -> None:
        self._change.changed.add(self.ir)
        if index >= len(self.ir.inputs):
            self.ir.resize_inputs(index + 1)
        self.ir.replace_input_with(index, value)

    def drop_input(self, index: int) -> None:
        """Drop an input, and the constant that it is if that has no other reader."""
        if (value := self.input(index)) is not None:
            self.put_input(index, None)
            self.trim()
            self.forget(value)

    def become(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> None:
        """Turn the node into another operator with the same outputs."""
        self._change.changed.add(self.ir)
        self.ir.op_type = op_type
        self.ir.resize_inputs(len(inputs))
        for index, value in enumerate(inputs):
            self.ir.replace_input_with(index, value)
        self.ir.attributes.clear()
        self.put(**attributes)

    def before(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Insert a node in front of this one and return its output."""
        node, value = self._new(op_type, inputs, attributes)
        self.ir.prepend(node)
        return value

    def after(self, index: int, op_type: str, *more: ir.Value, **attributes: Any) -> None:
        """Insert a node between output `index` and its readers; these then read the name from the new node."""
        value = self.ir.outputs[index]
        node, result = self._new(op_type, (), attributes)
        self.hand_over(index, result)
        node.resize_inputs(1 + len(more))
        for position, source in enumerate((value, *more)):
            node.replace_input_with(position, source)
        self.ir.append(node)

    def hand_over(self, index: int, value: ir.Value) -> None:
        """Transfer output `index`'s name, type, readers and place among the graph's outputs to `value`."""
        old = self.ir.outputs[index]
        self._change.known.hand_over(old, value)
        name, value.type, value.shape = old.name, old.type, old.shape
        old.shape = None
        old.replace_all_uses_with(value, replace_graph_outputs=True)
        old.name = self._change.free_name(f"{name}_before")
        value.name = name
        self._change.changed.add(self.ir)

    def remark(self, text: str) -> None:
        self._change.remarks[text] = None

    def trim(self) -> None:
        """Drop absent inputs at the end."""
        while self.ir.inputs and self.ir.inputs[-1] is None:
            self.ir.resize_inputs(len(self.ir.inputs) - 1)

    def name_output(self, index: int, what: str) -> None:
        """Name an output unless it has a name."""
        value = self.ir.outputs[index]
        value.name = value.name or self._wish(what)

    def remove(self) -> None:
        """Remove the node from the graph; its outputs must be handed over."""
        assert self.ir.graph is not None
        self._change.changed.add(self.ir)
        self.ir.graph.remove(self.ir, safe=True)

    def drop_outputs(self, count: int) -> None:
        """Keep the first `count` outputs; the others must be unused."""
        if len(self.ir.outputs) > count:
            self._change.changed.add(self.ir)
            self.ir.resize_outputs(count)

    def constant(self, values: npt.ArrayLike, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """Add a constant: an initializer, or a Constant node in a subgraph."""
        tensor = ir.tensor(np.asarray(values).astype(dtype.numpy()))
        if self.ir.graph is not self._change.graph or not self._change.holds_constants:
            return self.before("Constant", value=tensor)
        value = ir.val(self._wish("constant"), const_value=tensor)
        self._change.graph.register_initializer(value)
        return value

    def scalar(self, number: float, like: ir.Value) -> ir.Value:
        """Add a 0-D constant of the type of `like`."""
        dtype = self.dtype(like)
        if dtype is not None:
            return self.constant(number, dtype)
        if self._change.to < _CAST_LIKE_SINCE:
            raise NoForm(f"the type of its input {like.name!r} is not known; declare it in the file")
        return self.before("CastLike", self.constant(number, ir.DataType.FLOAT), like)

    def twin(self, value: ir.Value) -> ir.Value:
        """Return a new value of the same type and open shape."""
        dtype = None if value.dtype is None else ir.TensorType(value.dtype)
        return ir.Value(name=self._wish(f"{value.name}"), type=dtype)

    def forget(self, value: ir.Value) -> None:
        """Remove a constant without readers."""
        if value.uses() or value.is_graph_output() or value.is_graph_input():
            return
        if value.is_initializer() and value.graph is not None and value.name is not None:
            value.graph.initializers.pop(value.name)
        elif (producer := value.producer()) is not None and producer.graph is not None:
            producer.graph.remove(producer, safe=True)

    def _new(
        self, op_type: str, inputs: Iterable[ir.Value | None], attributes: dict[str, Any]
    ) -> tuple[ir.Node, ir.Value]:
        self._change.changed.add(self.ir)
        name = self._wish(op_type)
        value = ir.Value(name=name)
        converted = ir.convenience.convert_attributes(attributes)
        node = ir.Node("", op_type, inputs, converted, outputs=[value], name=name)
        self._change.made.add(node)
        return node, value

    def _wish(self, what: str) -> str:
        return self._change.free_name(f"{self.ir.outputs[0].name}_{what}")


def _resolve(attribute: ir.Attr) -> ir.Attr:
    if attribute.is_ref():
        raise NoForm(f"its attribute {attribute.name!r} is a parameter of the function around it")
    return attribute


def required(value: ir.Value | None) -> ir.Value:
    if value is None:
        raise NoForm("one of its inputs is missing")
    return value

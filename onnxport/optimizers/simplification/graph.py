"""The model that passes edit, and the edits that they share.

A rewriting mostly changes the last node of its pattern in place, which keeps its results and their names; unused
nodes are swept later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.artifact import Dim
from onnxport.formats.model import Model, dims_of

# Passes do not copy constants of more bytes.
LARGE = 64 * 2**10
# Attribute types that are numbers and strings.
PLAIN_ATTRIBUTES = frozenset(
    getattr(ir.AttributeType, name) for name in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")
)


@dataclass
class ModelEditor:
    """A model under simplification, and edits of it.

    Attributes:
        original: the source model, whose signature must stay.
        folder: for temporary files.
        notes: sentences for the report.
    """

    model: Model
    original: Model
    folder: Path
    notes: dict[str, None] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    @property
    def opset(self) -> int:
        return self.model.opset

    def graphs(self) -> list[ir.Graph]:
        """Return the main graph and those of branches and loop bodies."""
        return list(self.model.ir.graphs())

    def nodes(self, *ops: str) -> Iterator[ir.Node]:
        """Iterate over the nodes of these operators of ONNX's own domain, or over all; skip nodes removed
        meanwhile."""
        for node in list(self.model.graph.all_nodes()):
            if node.graph is not None and is_op(node, *ops):
                yield node

    def note(self, sentence: str) -> None:
        self.notes[sentence] = None

    def constant(self, node: ir.Node, array: Array, base: str) -> ir.Value:
        """Add a constant to the graph of `node`, named after `base`."""
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        name = self._free_name(base)
        value = ir.val(name, const_value=ir.Tensor(array, name=name))
        graph.register_initializer(value)
        return value

    def move_constant(self, constant: ir.Value, graph: ir.Graph) -> ir.Value:
        """Move a constant into another graph, under a free name."""
        self._taken.discard(constant.name or "")
        constant.name = self._free_name(f"{constant.name}.shared")
        graph.register_initializer(constant)
        return constant

    def insert(
        self,
        before: ir.Node,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        shape: ir.Shape | None,
    ) -> ir.Value:
        """Insert a node in front of another and return its result, of the type of that one's first result."""
        made = ir.node(op, inputs, attributes)
        graph, model = before.graph, before.outputs[0]
        assert graph is not None
        value = made.outputs[0]
        value.name, value.type = self._free_name(f"{model.name}.{op.lower()}"), model.type
        value.shape = shape
        made.name = value.name
        graph.insert_before(before, made)
        return value

    def _free_name(self, base: str) -> str:
        if not self._taken:
            self._taken.update(_names(self.model))
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}.{number}"
        self._taken.add(name)
        return name

    def forget_names(self) -> None:
        """Forget the used names, after a change that was not made through this class."""
        self._taken.clear()


def _names(model: Model) -> Iterator[str]:
    for graph in model.ir.graphs():
        for value in (*graph.inputs, *graph.initializers.values()):
            yield value.name or ""
        for node in graph:
            yield node.name or ""
            yield from (value.name or "" for value in node.outputs)


def is_op(node: ir.Node | None, *ops: str) -> bool:
    """Return whether a node is one of these operators of ONNX's own domain, or any of them if none is named."""
    return node is not None and node.domain == "" and (not ops or node.op_type in ops)


def producer(value: ir.Value | None, *ops: str) -> ir.Node | None:
    """Return the node that computes a value if it is one of these operators, or any if none is named."""
    node = None if value is None else value.producer()
    return node if is_op(node, *ops) else None


def array(value: ir.Value | None) -> Array | None:
    """Return the elements of a constant."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def number(value: ir.Value | None) -> float | None:
    """Return the one element of a constant."""
    if value is None or value.const_value is None or value.const_value.size != 1:
        return None
    if value.const_value.dtype == ir.DataType.STRING:
        return None
    return float(value.const_value.numpy().item())


def scalar_operand(node: ir.Node, index: int) -> float | None:
    """Return the one element of a constant operand of a binary node; None if it raises the result's rank.

    x of shape [3] and a constant of shape [1, 1, 1] make [1, 1, 3]: a rewriting without the constant makes [3].
    """
    constant, other = node.inputs[index], node.inputs[1 - index]
    found = number(constant)
    if found is None or constant is None or constant.const_value is None:
        return None
    dims = len(constant.const_value.shape)
    return found if dims <= (rank_of(other) or 0) else None


def integers(value: ir.Value | None) -> list[int] | None:
    """Return the elements of a small constant of integers."""
    if value is None or value.const_value is None or value.const_value.size > LARGE // 8:
        return None
    found = value.const_value.numpy()
    return [int(each) for each in found.reshape(-1)] if found.dtype.kind in "iu" else None


def axes_of(node: ir.Node, index: int = 1, name: str = "axes") -> list[int] | None:
    """Return axes given as an attribute or, in newer opsets, as a constant operand; None if computed, empty if
    absent.
    """
    if name in node.attributes:
        return [int(each) for each in node.attributes[name].as_ints()]
    if len(node.inputs) > index and node.inputs[index] is not None:
        return integers(node.inputs[index])
    return []


def rank_of(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def known_dims(value: ir.Value | None) -> tuple[Dim, ...] | None:
    """Return the dimensions of a value, also open ones; None if not even the rank is known."""
    return None if value is None or value.shape is None else dims_of(value)


def static(value: ir.Value | None) -> list[int] | None:
    """Return the dimensions of a value if all are numbers."""
    dims = known_dims(value)
    sizes = [dim for dim in dims or () if isinstance(dim, int)]
    return sizes if dims is not None and len(sizes) == len(dims) else None


def same_shape(a: ir.Value | None, b: ir.Value | None) -> bool:
    """Return whether two values are known to have the same dimensions."""
    left, right = known_dims(a), known_dims(b)
    return left is not None and left == right and None not in left


def only_use(value: ir.Value | None) -> bool:
    """Return whether a value has a single reader, which reads it once."""
    return value is not None and len(value.uses()) == 1 and not value.is_graph_output()


def rewrite(
    node: ir.Node, op: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any] | None = None
) -> int:
    """Turn a node into another, with the same results; return 1, for the count of changes."""
    node.op_type, node.version = op, None
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
    node.attributes.clear()
    for name, value in (attributes or {}).items():
        node.attributes[name] = (
            value if isinstance(value, ir.Attr) else ir.convenience.convert_attribute(name, value)
        )
    return 1


def bypass(node: ir.Node, source: ir.Value | None, index: int = 0) -> int:
    """Remove a node whose result `index` is `source`; its other results must have no readers.

    Returns 0 and changes nothing where the result is a graph output whose name `source` cannot take: it is another
    output, an input, a constant, or a value of an outer graph.
    """
    result, graph = node.outputs[index], node.graph
    if source is None or source is result or not isinstance(graph, ir.Graph):
        return 0
    if any(value.uses() or value.is_graph_output() for value in node.outputs if value is not result):
        return 0
    if result.is_graph_output():
        maker = source.producer()
        if (
            maker is None
            or maker.graph is not graph
            or source.is_graph_output()
            or source.dtype != result.dtype
        ):
            return 0
        if source.shape is None:
            source.shape = result.shape
        name, result.name = result.name, None
        source.name = name
    result.replace_all_uses_with(source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return 1

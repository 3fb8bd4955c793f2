"""The model that passes edit, the edits that they share, and the passes by name.

A pass changes the editor's model in place and returns how often it did. It may not change what the model computes, its
inputs or its outputs. A rewriting mostly changes the last node of its pattern, which keeps its results and their names;
unused nodes are swept later. Which passes run, and in which order, is data: passes.yaml.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model
from onnxport.optimizers.passes import Pass
from onnxport.optimizers.patterns import is_op

# Attribute types that are numbers and strings.
PLAIN_ATTRIBUTES = frozenset(
    getattr(ir.AttributeType, name) for name in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS")
)


@dataclass
class ModelEditor:
    """A model under simplification, and edits of it; the signature must stay that of `original`."""

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
        """Iterate over nodes of ONNX's own domain, all or these operators; skip nodes removed meanwhile."""
        for node in list(self.model.graph.all_nodes()):
            if node.graph is not None and is_op(node, *ops):
                yield node

    def note(self, sentence: str) -> None:
        self.notes[sentence] = None

    def constant(self, node: ir.Node, array: Array, base: str) -> ir.Value:
        """Add a constant to the graph of `node`, named after `base`."""
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        return add_initializer(graph, self._free_name(base), array)

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
        is_free = maker is not None and maker.graph is graph and not source.is_graph_output()
        if not is_free or source.dtype != result.dtype:
            return 0
        if source.shape is None:
            source.shape = result.shape
        name, result.name = result.name, None
        source.name = name
    result.replace_all_uses_with(source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return 1


# ---- the registry

Run = Callable[[ModelEditor], int]

PASSES: dict[str, Pass[ModelEditor]] = {}


def simplification(name: str, *, first: bool = False) -> Callable[[Run], Run]:
    """Register the decorated function as the pass `name`; see passes.Pass for `first`.

    Its docstring says its rules, and in a last paragraph "Keeps: ..." what it leaves alone.
    """

    def register(run: Run) -> Run:
        if name in PASSES:
            raise ValueError(f"there is a pass {name} already: {PASSES[name].run}")
        rules, _, keeps = (
            " ".join(part.split()) for part in (inspect.getdoc(run) or "").partition("Keeps: ")
        )
        PASSES[name] = Pass(name, run, rules, keeps, first)
        return run

    return register


# Bound on a simplified model's growth: folded shapes and merged weights are of that order.
GROWTH, GROWTH_BYTES = 1.1, 64 * 2**10


@dataclass(frozen=True)
class Size:
    """Counts over all graphs of a model: nodes without Constant, elements and bytes of all constants."""

    nodes: int
    parameters: int
    bytes: int

    def change(self, after: Size) -> dict[str, list[int]]:
        """Return each figure of the report as [before, after]."""
        return {name: [figure, getattr(after, name)] for name, figure in asdict(self).items()}

    @property
    def bound(self) -> int:
        """The most bytes that a model simplified from this one may have."""
        return int(self.bytes * GROWTH) + GROWTH_BYTES


def measure_size(model: Model) -> Size:
    """Count nodes and constants; a constant counts once however many names it has."""
    constants = [value.const_value for graph in model.ir.graphs() for value in graph.initializers.values()]
    nodes = list(model.graph.all_nodes())
    constants += [
        attribute.as_tensor()
        for node in nodes
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref()
    ]
    tensors = {id(tensor): tensor for tensor in constants if tensor is not None}.values()
    return Size(
        sum(node.op_type != "Constant" or node.domain != "" for node in nodes),
        sum(tensor.size for tensor in tensors),
        sum(tensor.nbytes for tensor in tensors if tensor.dtype != ir.DataType.STRING),
    )

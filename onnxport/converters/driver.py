"""The driver that lowers a graph node by node, whatever the target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import ClassVar, Generic, Protocol, TypeVar

import onnx_ir as onnx

from onnxport.converters.lowering import NodeView, Registry, UnsupportedOp, node_name, qualified_op
from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.formats.manifest import Tap
from onnxport.optimizers.node_marks import WAITS

V = TypeVar("V")  # a target's value
B = TypeVar("B")  # a target's builder

_WORTH_FREEING = 2**20  # bytes


def import_lowerings(package: ModuleType) -> None:
    """Import every module of `package`, so that its lowerings are registered."""
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")


class Scope(Protocol[V]):
    """The graph being lowered, for lowerings of nodes that hold graphs (If, Loop)."""

    def find(self, value: onnx.Value) -> V | None:
        """Return the target's value of a visible ONNX value; None behind a refused node."""

    def lower(self, graph: onnx.Graph, visible: Mapping[onnx.Value, V]) -> list[V | None]:
        """Lower a nested graph into the block under construction; None for an output behind a refused node.

        Args:
            visible: values of the nested graph's inputs, and of others that it reads where the target needs them.
        """


class Driver(ABC, Generic[V, B]):
    """One run over a graph; a target's subclass makes values, names results and declares ports.

    A refused node gets stand-in results, so that the run goes on and finds every refusal.

    Attributes:
        values: the target's value of each ONNX value so far.
        taps: where the artefact holds an ONNX value, by name.
        depth: how many nested graphs are open.
    """

    target: ClassVar[str]
    unported: ClassVar[str]  # the property of a port that the target may not carry ("a type")
    errors: ClassVar[tuple[type[Exception], ...]]  # beside UnsupportedOp, that refuse a node

    def __init__(self, graph: onnx.Graph, registry: Registry[V, B]) -> None:
        self.graph, self.registry = graph, registry
        self.values: dict[onnx.Value, V] = {}
        self.refusals: list[Refusal] = []
        self.taps: dict[str, Tap] = {}
        self.depth = 0
        self._reads: Counter[onnx.Value] = Counter()

    @staticmethod
    @abstractmethod
    def constant(array: Array) -> V: ...

    @abstractmethod
    def lower_node(self, node: onnx.Node, operands: Sequence[V | None]) -> None:
        """Lower one node and bind its results in `values`.

        Raises:
            UnsupportedOp, or one of `errors`: the target cannot hold the node.
        """

    @abstractmethod
    def stand_in(self, value: onnx.Value) -> V | None:
        """Make a value in place of a refused node's result; None where the target has none of its type."""

    @abstractmethod
    def nested_values(self, visible: Mapping[onnx.Value, V]) -> dict[onnx.Value, V]:
        """Return the values that the nodes of a nested graph see."""

    def reason(self, error: Exception) -> str:
        """Return the reason for a refusal by one of `errors`."""
        return str(error)

    def is_bound(self, node: onnx.Node) -> bool:
        """Bind the results of a node that needs no lowering, and tell if it is one."""
        return False

    def lower_nodes(self) -> None:
        for node in self.graph:
            self._lower(node)
            self._release_constants(node)

    def check_refusals(self) -> None:
        """Raise CannotConvertError with all refusals, if there are any."""
        if not self.refusals:
            return
        ports = sum(refusal.op in ("input", "output") for refusal in self.refusals)
        nodes = len(self.refusals) - ports
        causes = []
        if nodes:
            total = sum(1 for _ in self.graph.all_nodes())
            have = "has" if nodes == 1 else "have"
            causes.append(f"{nodes} of {total} nodes {have} no equivalent in {self.target}")
        if ports:
            subject = "input or output has" if ports == 1 else "inputs or outputs have"
            causes.append(f"{ports} {subject} {self.unported} that it does not carry")
        raise CannotConvertError(" and ".join(causes), refusals=self.refusals)

    def find(self, value: onnx.Value) -> V | None:
        """See Scope; makes the value of an initializer when it is first read."""
        if value not in self.values and value.const_value is not None:
            self.values[value] = self.constant(value.const_value.numpy())
        return self.values.get(value)

    def lower(self, graph: onnx.Graph, visible: Mapping[onnx.Value, V]) -> list[V | None]:
        """See Scope."""
        outer = self.values
        self.values = self.nested_values(visible)
        self.depth += 1
        try:
            for node in graph:
                self._lower(node)
            return [self.find(value) for value in graph.outputs]
        finally:
            self.values = outer
            self.depth -= 1

    def _lower(self, node: onnx.Node) -> None:
        if self.is_bound(node):
            return
        operands = [None if value is None else self.find(value) for value in node.inputs]
        lacks = any(o is None and v is not None for o, v in zip(operands, node.inputs, strict=True))
        if lacks and (qualified_op(node) in self.registry.ops or WAITS in node.metadata_props):
            return  # downstream of a refused node whose result has no known rank
        try:
            self.lower_node(node, operands)
        except UnsupportedOp as error:
            self._refuse(node, error.refusal)
        except self.errors as error:
            self._refuse(node, Refusal(qualified_op(node), node_name(node), self.reason(error)))

    def _refuse(self, node: onnx.Node, refusal: Refusal) -> None:
        self.refusals.append(refusal)
        for value in node.outputs:
            if value.shape is None or value.dtype is None:
                continue
            made = self.stand_in(value)
            if made is not None:
                self.values[value] = made

    def _release_constants(self, node: onnx.Node) -> None:
        """Free large constants after their last reader: the target has its own copies."""
        for value in node.inputs:
            if value is None or value.const_value is None or value.dtype == onnx.DataType.STRING:
                continue
            if value.const_value.nbytes < _WORTH_FREEING:
                continue
            self._reads[value] += 1
            if self._reads[value] == len(value.uses()) and not value.is_graph_output():
                self.values.pop(value, None)
                value.const_value = None


def check_rank(view: NodeView[V], index: int, rank: int) -> None:
    """Refuse a result without the rank of its ONNX value: ONNX's own definition of Celu gives a scalar an axis."""
    known = view.node.outputs[index].shape
    if known is not None and len(known) != rank:
        view.unsupported(f"gives {rank} dimensions where ONNX says {len(known)}")

"""If: one MIL operator with both branches as blocks."""

from __future__ import annotations

import onnx_ir as onnx

from onnxport.converters.coreml.builder import MilBuilder
from onnxport.converters.coreml.control.blocks import block_result, check_carried, with_open_sizes
from onnxport.converters.coreml.library import Var
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.values import Value
from onnxport.converters.lowering import NodeView


@lower("If")
def if_(node: NodeView[Value], mil: MilBuilder) -> None:
    """Run one of two graphs, whose results may differ in their sizes (ONNX If-21)."""
    then, otherwise = node.attribute("then_branch"), node.attribute("else_branch")
    condition = node.x if not node.x.rank else mil.squeeze(x=node.x, axes=list(range(node.x.rank)))
    _If(node, mil, condition, [then, otherwise]).run()


class _If:
    def __init__(
        self, node: NodeView[Value], mil: MilBuilder, condition: Value, graphs: list[onnx.Graph]
    ) -> None:
        self.node, self.mil, self.graphs = node, mil, graphs
        self.switch = mil.var(condition)
        self.sizes = [self._sizes(index) for index in range(len(graphs[0].outputs))]

    def _sizes(self, index: int) -> bool:
        """Tell if the branches may differ in the sizes of result `index`."""
        then, otherwise = (graph.outputs[index] for graph in self.graphs)
        if then.shape is None or otherwise.shape is None:
            return True
        if len(then.shape) != len(otherwise.shape):
            self.node.unsupported(
                f"its branches give {len(then.shape)} and {len(otherwise.shape)} dimensions for one result; "
                "give it the same number in both"
            )
        return list(then.shape) != list(otherwise.shape) or any(not isinstance(d, int) for d in then.shape)

    def run(self) -> None:
        then, otherwise = self.graphs
        results = self.mil.cond(
            pred=self.switch, _true_fn=lambda: self._branch(then), _false_fn=lambda: self._branch(otherwise)
        )
        for index, result in enumerate(results if isinstance(results, list) else [results]):
            self.node.emit(result, index)

    def _branch(self, graph: onnx.Graph) -> tuple[Var, ...]:
        outputs = self.mil.scope.lower(graph, {})
        found = [self._result(index, value) for index, value in enumerate(outputs)]
        return tuple(found)

    def _result(self, index: int, value: Value | None) -> Var:
        if value is None:
            self.node.unsupported("a branch has nodes that are refused, or gives what is no tensor")
        check_carried(self.node, value, self.node.node.outputs[index].name)
        if self.sizes[index] and value.rank:
            value = with_open_sizes(self.mil, value, self.switch)
        return block_result(self.mil, value)

"""The operators of a `.tflite` file, with ONNX's names for operators and, where the file notes them, for values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from onnxport.formats.graph import Node, OperatorGraph, Tensor
from onnxport.formats.graph.tflite import read_tflite

# Operators under ONNX's names, where a name tells an operator from others or says that it only moves values.
_ALIASES = {
    "CONV_2D": "Conv",
    "DEPTHWISE_CONV_2D": "Conv",
    "TRANSPOSE_CONV": "ConvTranspose",
    "FULLY_CONNECTED": "Gemm",
    "BATCH_MATMUL": "MatMul",
    "TRANSPOSE": "Transpose",
    "RESHAPE": "Reshape",
    "EXPAND_DIMS": "Unsqueeze",
    "SQUEEZE": "Squeeze",
    "CAST": "Cast",
    "QUANTIZE": "QuantizeLinear",
    "DEQUANTIZE": "DequantizeLinear",
    "LOGISTIC": "Sigmoid",
    "MAX_POOL_2D": "MaxPool",
    "AVERAGE_POOL_2D": "AveragePool",
    "CONCATENATION": "Concat",
    "HARD_SWISH": "HardSwish",
    "PAD": "Pad",
    "PADV2": "Pad",
}
_UNNOTED = "file: "  # before the name of a value that the note in the file does not name

# Of a subgraph, and of an operator in it.
Number = tuple[int, int]


@dataclass(frozen=True)
class TfliteOperators:
    """The operators of a file.

    Attributes:
        main: the main graph, with ONNX's names of operators.
        nodes: the operators of all subgraphs by number, those of the main graph first.
        ops: TFLite's name of each operator.
        noted: the ONNX values that our manifest in the file names.
    """

    main: OperatorGraph
    nodes: Mapping[Number, Node]
    ops: Mapping[Number, str]
    noted: frozenset[str]

    def keep(self, numbers: Collection[Number]) -> dict[Number, Node]:
        """Return these operators; each also reads what the operators left out between them read."""
        left_out = {
            tensor: node
            for number, node in self.nodes.items()
            if number not in numbers
            for tensor in node.outputs
        }

        def sources(tensor: Tensor | None, seen: frozenset[Tensor] = frozenset()) -> Iterator[Tensor]:
            if tensor is None:
                return
            if tensor not in left_out or tensor in seen:
                yield tensor
                return
            for each in left_out[tensor].inputs:
                yield from sources(each, seen | {tensor})

        def bridge(node: Node) -> Node:
            return replace(
                node, inputs=tuple(dict.fromkeys(one for each in node.inputs for one in sources(each)))
            )

        return {number: bridge(node) for number, node in self.nodes.items() if number in numbers}

    def noted_graph(self) -> OperatorGraph:
        """Return the main graph as far as the note names its values; all others get names of their own."""
        known = {*self.main.inputs, *self.main.constants}

        def rename(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
            return tuple(
                each
                if each is None or each in known or each.name in self.noted
                else Tensor(f"{_UNNOTED}{each.name}")
                for each in tensors
            )

        nodes = [
            replace(
                node,
                op="" if self.noted.isdisjoint(node.output_names) else node.op,
                inputs=rename(node.inputs),
                outputs=rename(node.outputs),
            )
            for node in self.main.nodes
        ]
        return OperatorGraph(nodes, self.main.inputs, constants=self.main.constants)


def read_operators(path: Path) -> TfliteOperators:
    """Read the operators of the file at `path`.

    Raises:
        InputError: no TFLite file, or a damaged one.
    """
    model = read_tflite(path, distinct=True)
    nodes, ops = {}, {}
    for each in model.subgraphs:
        prefix = f"subgraph {each.index}: " if each.index else ""
        for place, node in enumerate(each.graph.nodes):
            op = _ALIASES.get(node.op, node.op)
            nodes[each.index, place] = replace(
                node, op=op, name=prefix + node.label, attributes={}, bodies={}
            )
            ops[each.index, place] = node.op
    main = replace(model.main.graph, nodes=[node for (graph, _), node in nodes.items() if not graph])
    noted = {*model.ends.taps, *(port.name for port, _ in model.ends.outputs)} if model.ends.taps else ()
    return TfliteOperators(main, nodes, ops, frozenset(noted))

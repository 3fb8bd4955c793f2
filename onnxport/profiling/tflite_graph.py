"""A `.tflite` file's operators, with values called as in the ONNX model that it was made from, where its note tells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from onnxport.formats.tflite.ports import Ends, leading_name, read_ends
from onnxport.profiling.graphs import Graph, Node

# Operators under ONNX's names, as far as one is needed to tell them from others or to know that they only move values.
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


_OWN = "file: "

# Of a subgraph, and of an operator in it.
Number = tuple[int, int]


@dataclass(frozen=True)
class Operators:
    """Attributes:
    nodes: by subgraph and number.
    names: TFLite's name of each one's operator.
    inputs, constants: of values.
    noted: the ONNX values that our note in the file names.
    """

    nodes: Mapping[Number, Node]
    names: Mapping[Number, str]
    inputs: frozenset[str]
    constants: frozenset[str]
    noted: frozenset[str]

    def main_nodes(self) -> dict[Number, Node]:
        """The operators of the main graph, in the order of the file."""
        return {number: node for number, node in self.nodes.items() if number[0] == 0}

    def without(self, kept: Collection[Number]) -> dict[Number, Node]:
        """The operators `kept`, those between them left out: each reads what these read."""
        gone = {
            name: node for number, node in self.nodes.items() if number not in kept for name in node.outputs
        }

        def sources(name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
            if name not in gone or name in seen:
                yield name
                return
            for each in gone[name].inputs:
                yield from sources(each, seen | {name})

        def through(node: Node) -> Node:
            read = (each for name in node.inputs for each in sources(name))
            return replace(node, inputs=tuple(dict.fromkeys(read)))

        return {number: through(node) for number, node in self.nodes.items() if number in kept}

    def as_noted(self) -> Graph:
        """The main graph as far as the note tells of it: values that it does not name have names of their own."""

        def called(names: Sequence[str]) -> tuple[str, ...]:
            known = self.noted | self.inputs | self.constants
            return tuple(name if name in known else f"{_OWN}{name}" for name in names)

        def noted(node: Node) -> Node:
            op = "" if self.noted.isdisjoint(node.outputs) else node.op
            return replace(node, op=op, inputs=called(node.inputs), outputs=called(node.outputs))

        return Graph(tuple(map(noted, self.main_nodes().values())), self.inputs, self.constants)


def operators(path: Path) -> Operators:
    """The operators of the file at `path`.

    Raises:
        InputError: not a TFLite file, or a damaged one.
    """
    ends = read_ends(path)
    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    nodes, names, constants = {}, {}, set()
    for number in range(model.SubgraphsLength()):
        graph = model.Subgraphs(number)
        called = _called(graph, ends if number == 0 else None, number)
        constants |= {
            called[i] for i in range(graph.TensorsLength()) if _is_constant(model, graph.Tensors(i))
        }
        for place in range(graph.OperatorsLength()):
            operator = graph.Operators(place)
            name = _operator_name(model, operator)
            made = [called[int(i)] for i in operator.OutputsAsNumpy()]
            read = (
                [called[int(i)] for i in operator.InputsAsNumpy() if i >= 0]
                if operator.InputsLength()
                else []
            )
            nodes[number, place] = Node(
                made[0] if made else name, _ALIASES.get(name, name), tuple(read), tuple(made)
            )
            names[number, place] = name
    inputs = frozenset(port.name for port, _ in ends.inputs)
    outputs = [port.name for port, _ in ends.outputs]
    noted = frozenset((*ends.taps, *outputs)) if ends.taps else frozenset()
    return Operators(nodes, names, inputs, frozenset(constants), noted)


def _called(graph: Any, ends: Ends | None, number: int) -> dict[int, str]:
    """What each tensor of a subgraph is called: as in the ONNX model if the note says, else as in the file."""
    prefix = "" if number == 0 else f"subgraph {number}: "
    found = {}
    for index in range(graph.TensorsLength()):
        name = leading_name(bytes(graph.Tensors(index).Name() or b"").decode(errors="replace"))
        found[index] = f"{prefix}{name}"
    if ends is not None:
        noted = {tap.key: name for name, tap in ends.taps.items()}
        found = {index: noted.get(name, name) for index, name in found.items()}
        found |= {index: port.name for port, index in (*ends.inputs, *ends.outputs)}
    return found


def _is_constant(model: Any, tensor: Any) -> bool:
    buffer = model.Buffers(tensor.Buffer())
    return bool(buffer.DataLength() or buffer.Size())


def _operator_name(model: Any, operator: Any) -> str:
    code = model.OperatorCodes(operator.OpcodeIndex())
    if code.CustomCode():
        return bytes(code.CustomCode()).decode(errors="replace")
    return _BUILTIN[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]


_NUMBERS = vars(schema.BuiltinOperator).items()
_BUILTIN: dict[int, str] = {number: name for name, number in _NUMBERS if isinstance(number, int)}

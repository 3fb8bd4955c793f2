"""The ONNX graph that `debug` searches: its values in order, their dependencies, and parts cut out as models.

Model-local functions are inlined first, as the converters do. If, Loop and Scan are one node each; what their bodies
read from outside counts as their inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxport.formats.graph.onnx import from_ir
from onnxport.formats.model import Model
from onnxport.samples.domain import without_functions
from onnxport.validate.graph_analysis import node_length
from onnxport.validate.report import NodeRef

# Ends the name of a node's output in a part that takes the candidate's value of that name as an input.
ANSWER_SUFFIX = "/answer"

# Their outputs are sequences, optionals or maps, which no runtime returns here.
_NO_TENSORS = frozenset(
    "SequenceConstruct SequenceEmpty SequenceInsert SequenceErase SequenceMap SplitToSequence "
    "Optional OptionalGetElement ZipMap".split()
)

_MEANS = frozenset({"GlobalAveragePool", "AveragePool", "GlobalLpPool", "LpPool", "Mean", "Sum", "CumSum"})


@dataclass(frozen=True)
class Part:
    """Some nodes of a model as a model of their own.

    Attributes:
        proto: the model; its weights on disk stay there.
        inputs: graph inputs, and values that it is given.
        answers: value name to the name of the part's output.
    """

    proto: onnx.ModelProto
    inputs: tuple[str, ...]
    answers: dict[str, str]


class Network:
    """A model's graph.

    Attributes:
        model: the model without model-local functions.
        folder: the folder of weights in separate files.
    """

    def __init__(self, model: Model) -> None:
        self.model = without_functions(model)
        self.proto: onnx.ModelProto = ir.to_proto(self.model.ir)
        self.folder: Path | None = None if model.path is None else model.path.parent
        graph = self.proto.graph
        self.nodes: list[onnx.NodeProto] = list(graph.node)
        self.producers = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self.inputs = {value.name: value for value in graph.input if value.name not in self._weights}
        self.outputs = tuple(value.name for value in graph.output)
        self._reads = [
            [each.name for each in node.reads() if each.name] for node in from_ir(self.model.ir).nodes
        ]

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The tensors that nodes of the main graph compute, without constants, in the graph's order."""
        return tuple(
            name
            for node in self.nodes
            if node.op_type != "Constant" and node.op_type not in _NO_TENSORS
            for name in node.output
            if name
        )

    def node(self, value: str) -> onnx.NodeProto:
        return self.nodes[self.producers[value]]

    def ref(self, value: str) -> NodeRef:
        node = self.node(value)
        return NodeRef(name=node.name, op=node.op_type, value=value)

    def constant(self, name: str) -> np.ndarray[Any, np.dtype[Any]] | None:
        """Return the elements of an initializer in the file itself; None for any other value."""
        tensor = self._weights.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return onnx.numpy_helper.to_array(tensor)

    def quantized(self) -> dict[str, str]:
        """Return the values that are only read quantized, with the name that is read: "v" to "v_Dequantized".

        The quantizer's range may replace a Clip behind such a value, so the network does not use the value itself.
        """
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        found = {}
        for name in self.values:
            first = readers.get(name, [])
            second = readers.get(first[0].output[0], []) if len(first) == 1 else []
            pair = [node.op_type for node in (*first, *second)]
            if pair == ["QuantizeLinear", "DequantizeLinear"] and name not in self.outputs:
                found[name] = second[0].output[0]
        return found

    def between(self, value: str, given: frozenset[str]) -> list[int]:
        """Return the nodes that compute `value` from values in `given`, in order; its own node is always one."""
        pending, found = [self.producers[value]], set[int]()
        while pending:
            index = pending.pop()
            if index in found:
                continue
            found.add(index)
            pending += [
                self.producers[name]
                for name in self._reads[index]
                if name in self.producers and name not in given
            ]
        return sorted(found)

    def frontier(self, value: str, given: frozenset[str]) -> list[str]:
        """Return the values in `given` from which `value` is computed, in order."""
        needed = {name for index in self.between(value, given) for name in self._reads[index]}
        return sorted(needed & given, key=self.producers.__getitem__)

    def ancestors(self, values: Iterable[str]) -> frozenset[str]:
        """Return the values from which `values` are computed, and `values` themselves."""
        pending = [self.producers[name] for name in values if name in self.producers]
        found = set[int]()
        while pending:
            index = pending.pop()
            if index not in found:
                found.add(index)
                pending += [self.producers[n] for n in self._reads[index] if n in self.producers]
        return frozenset(name for index in found for name in self.nodes[index].output if name)

    def part(self, targets: Sequence[str], given: frozenset[str]) -> Part:
        """Cut out the nodes that compute `targets` from values in `given`; the caller adds the types of `given`."""
        indices = sorted({index for name in targets for index in self.between(name, given)})
        nodes = [onnx.NodeProto.FromString(self.nodes[i].SerializeToString()) for i in indices]
        reads = {name for index in indices for name in self._reads[index]}
        made = {name for node in nodes for name in node.output}
        taken = [name for name in self.inputs if name in reads]
        taken += [name for name in self.values if name in reads and (name in given or name not in made)]
        for node in nodes:
            for position, name in enumerate(node.output):
                if name in given:
                    node.output[position] = name + ANSWER_SUFFIX
        answers = {name: name + ANSWER_SUFFIX if name in given else name for name in targets}
        graph = onnx.GraphProto(name=self.proto.graph.name or "part", node=nodes)
        graph.input.extend(self.inputs.get(name, onnx.ValueInfoProto(name=name)) for name in taken)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in answers.values())
        graph.initializer.extend(self._weights[name] for name in sorted(reads & self._weights.keys()))
        graph.sparse_initializer.extend(self._sparse[name] for name in sorted(reads & self._sparse.keys()))
        proto = onnx.ModelProto(
            ir_version=self.proto.ir_version,
            opset_import=self.proto.opset_import,
            functions=self.proto.functions,
            graph=graph,
        )
        return Part(proto, tuple(taken), answers)

    def giving(self, names: Iterable[str], more: Sequence[onnx.NodeProto] = ()) -> bytes:
        """Return the whole model with `more` nodes at its end and `names` as outputs of inferred types."""
        graph = self.proto.graph
        count, kept = len(graph.node), list(graph.output)
        graph.node.extend(more)
        del graph.output[:]
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        try:
            data: bytes = self.proto.SerializeToString()
        finally:
            del graph.node[count:]
            del graph.output[:]
            graph.output.extend(kept)
        return data

    def length(self, indices: Iterable[int], sizes: Mapping[str, int]) -> int:
        """Return the longest sum of products in these nodes, by their weights or else by the `sizes` of values."""
        return max((self._lengths[index] or self._reduced(index, sizes) for index in indices), default=1)

    @cached_property
    def _lengths(self) -> list[int | None]:
        return [node_length(node) for node in self.model.graph]

    def _reduced(self, index: int, sizes: Mapping[str, int]) -> int:
        """Return how many elements a reduction makes one; 1 for other nodes."""
        node = self.nodes[index]
        if not (node.op_type.startswith("Reduce") or node.op_type in _MEANS):
            return 1
        return sizes.get(node.input[0], 1) // max(sizes.get(node.output[0], 1), 1) or 1

"""The graph of a model file as a document that Model Explorer opens.

The form is that of its GraphBuilder (ai_edge_model_explorer, graph_builder.py): graphs of nodes with an id, a label, a
namespace in which it groups them, attributes, and edges to the outputs that a node reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact
from onnxport.formats.graph import Node, OperatorGraph, Tensor, format_shape

_LONGEST = 200  # characters of an attribute
MAIN = "main"


@dataclass(frozen=True)
class ViewedGraph:
    """A graph of a file with an id for each node.

    Attributes:
        id: "main", or "main/NODE.ATTRIBUTE" for a body of the node.
        nodes: by id, in the order of the file.
    """

    id: str
    graph: OperatorGraph
    nodes: Mapping[str, Node]


def read_graphs(artifact: Artifact) -> list[ViewedGraph]:
    """Read the graph of an `.onnx`, `.ort` or `.tflite` file, then the bodies of its nodes.

    Raises:
        UsageError: a Core ML package, which has no such graph.
        InputError: the file is damaged.
    """
    return list(_viewed(MAIN, _read(artifact)))


def document(name: str, graphs: list[ViewedGraph]) -> dict[str, Any]:
    """Return the collection of graphs that Model Explorer shows as `name`."""
    return {"label": name, "graphs": [_graph_document(each) for each in graphs]}


def _read(artifact: Artifact) -> OperatorGraph:
    # Each reader imports its own libraries.
    if artifact.format == "onnx":
        from onnxport.formats.graph.onnx import from_ir
        from onnxport.formats.model import Model

        return from_ir(Model.load(artifact.path).ir)
    if artifact.format == "tflite":
        from onnxport.formats.graph.tflite import read_tflite

        return read_tflite(artifact.path).main.graph
    if artifact.format == "ort":
        from onnxport.formats.graph.ort import read_ort

        return read_ort(artifact.path).graph
    raise UsageError(
        f"{artifact.path} has no graph that can be exported",
        why="it is a Core ML package",
        fix="leave --export out: Netron shows it",
    )


def _viewed(name: str, graph: OperatorGraph) -> Iterator[ViewedGraph]:
    labels = Counter(node.label for node in graph.nodes)
    ids = (
        node.label if labels[node.label] == 1 else f"{node.label}#{number}"
        for number, node in enumerate(graph.nodes)
    )
    found = ViewedGraph(name, graph, dict(zip(ids, graph.nodes, strict=True)))
    yield found
    for key, node in found.nodes.items():
        for attribute, body in node.bodies.items():
            yield from _viewed(f"{name}/{key}.{attribute}", body)


def _graph_document(viewed: ViewedGraph) -> dict[str, Any]:
    graph = viewed.graph
    # Tensor to the node and the number of the output that make it.
    made: dict[Tensor, tuple[str, str]] = {}
    nodes = []
    for number, tensor in enumerate(graph.inputs):
        made[tensor] = (f"input {number}", "0")
        nodes.append(_end(f"input {number}", "Input", tensor) | {"outputsMetadata": [_output("0", tensor)]})
    for key, node in viewed.nodes.items():
        made |= {each: (key, str(slot)) for slot, each in enumerate(node.outputs) if each is not None}
    nodes += [_node_document(viewed.id, key, node, made) for key, node in viewed.nodes.items()]
    for number, tensor in enumerate(graph.outputs):
        edges = {"incomingEdges": _edges((tensor,), made)}
        nodes.append(_end(f"output {number}", "Output", tensor) | edges)
    return {"id": viewed.id, "nodes": nodes}


def _end(key: str, label: str, tensor: Tensor) -> dict[str, Any]:
    return {"id": key, "label": label, "namespace": "", "attrs": _attributes({"name": tensor.name})}


def _node_document(
    graph: str, key: str, node: Node, made: Mapping[Tensor, tuple[str, str]]
) -> dict[str, Any]:
    constants = {
        f"input {slot}": f"{each.name} {_type(each)}, constant"
        for slot, each in enumerate(node.inputs)
        if each is not None and each not in made
    }
    numbers = {name: value for name, value in node.attributes.items() if not isinstance(value, Tensor)}
    return {
        "id": key,
        "label": node.qualified,
        "namespace": node.name.rpartition("/")[0].strip("/"),
        "attrs": _attributes({"name": node.name} | numbers | constants),
        "incomingEdges": _edges(node.inputs, made),
        "outputsMetadata": [
            _output(str(slot), each) for slot, each in enumerate(node.outputs) if each is not None
        ],
        "subgraphIds": [f"{graph}/{key}.{attribute}" for attribute in node.bodies],
    }


def _edges(
    tensors: tuple[Tensor | None, ...], made: Mapping[Tensor, tuple[str, str]]
) -> list[dict[str, str]]:
    return [
        {"sourceNodeId": made[each][0], "sourceNodeOutputId": made[each][1], "targetNodeInputId": str(slot)}
        for slot, each in enumerate(tensors)
        if each is not None and each in made
    ]


def _output(slot: str, tensor: Tensor) -> dict[str, Any]:
    return {"id": slot, "attrs": _attributes({"tensor_name": tensor.name, "tensor_shape": _type(tensor)})}


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{format_shape(tensor.shape)}"


def _attributes(values: Mapping[str, object]) -> list[dict[str, str]]:
    texts = {name: str(value) for name, value in values.items() if value not in ("", None)}
    return [
        {"key": name, "value": text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."}
        for name, text in texts.items()
    ]

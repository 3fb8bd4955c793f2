"""Parsers of engines' messages of refusal: nodes of the model, and reasons in its terms.

Messages are no interface: one that has changed is shown as it is, without a node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from onnxport.core.errors import UsageError
from onnxport.deployment.report import Fallback
from onnxport.formats.artifact import Dim
from onnxport.formats.graph import Node, OperatorGraph, format_shape
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.fixed_shapes import pin_shapes

Sizes = Mapping[str, tuple[int, ...]]

_LONGEST = 300  # characters


@dataclass(frozen=True)
class Refused:
    """A parsed message."""

    fallbacks: tuple[Fallback, ...] = ()  # the nodes that the engine refuses
    why: str = ""  # the message, if it names no node


Reader = Callable[[str, OperatorGraph, Model, Sizes], Refused]


def _unparsed(message: str) -> Refused:
    return Refused(why=" ".join(message.split())[:_LONGEST])


def _refuse_operators(names: Iterable[str], graph: OperatorGraph, why: str) -> tuple[Fallback, ...]:
    """Refuse every node of these operators."""
    wanted = set(names)
    return tuple(
        Fallback(op=node.qualified, node=node.label, why=why.format(op=node.op))
        for node in graph.all_nodes()
        if node.op in wanted
    )


def _refuse_node(node: Node, why: str) -> Fallback:
    return Fallback(op=node.qualified, node=node.label, why=" ".join(why.split())[:_LONGEST])


_TRACT_NODE = re.compile(r'node #\d+ "([^"]+)"')
_TRACT_UNKNOWN = re.compile(r"Unimplemented\((\w+)\)")
_TRACT_SHAPES = re.compile(r"Impossible to unify|Unifying shapes")


def tract(message: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """Parse steps from the outermost node to the reason; tract stops at the first unknown operator."""
    if unknown := _TRACT_UNKNOWN.findall(message):
        return Refused(_refuse_operators(unknown, graph, "tract has no {op}"))
    if _TRACT_SHAPES.search(message) and (contradicted := tuple(_find_contradictions(graph, model, sizes))):
        return Refused(contradicted)
    named = set(_TRACT_NODE.findall(message))
    found = [node for node in graph.all_nodes() if {node.label, *_output_names(node)} & named]
    if not found:
        return _unparsed(message)
    reason = message.rsplit('" ', 1)[-1].partition(": ")[2] or message
    return Refused((_refuse_node(found[-1], reason),))


def _find_contradictions(graph: OperatorGraph, model: Model, sizes: Sizes) -> Iterator[Fallback]:
    """Yield nodes whose declared shapes contradict those that follow from the sizes of the inputs."""
    assert model.path is not None, "an engine runs a file"
    declared = _read_declared_shapes(model.path) | _declared_shapes(model)
    copy = model.clone()
    try:
        pin_shapes(copy, sizes)
    except UsageError:
        return
    followed = _declared_shapes(copy)
    for node in graph.all_nodes():
        for name in _output_names(node):
            was, is_now = declared.get(name), followed.get(name)
            if was is not None and is_now is not None and was != is_now:
                yield _refuse_node(
                    node, f"the file declares {name!r} as {format_shape(was)}, {format_shape(is_now)} follows"
                )


def _read_declared_shapes(path: Path) -> dict[str, tuple[Dim, ...]]:
    """Return the shapes of values inside as the engine reads them: `Model.load` drops those that are wrong."""
    values = onnx.load(path, load_external_data=False).graph.value_info
    read = (ir.serde.deserialize_value_info_proto(value, None) for value in values)
    return {value.name: dims_of(value) for value in read if value.name and value.shape is not None}


def _declared_shapes(model: Model) -> dict[str, tuple[Dim, ...]]:
    outputs = set(model.graph.outputs)
    return {
        value.name: dims_of(value)
        for node in model.graph.all_nodes()
        for value in node.outputs
        if value.name and value.shape is not None and value not in outputs
    }


def _output_names(node: Node) -> Iterator[str]:
    return (each.name for each in node.outputs if each is not None)


_OV_UNKNOWN = re.compile(r"No conversion rule found for operations: ([\w., ]+)")
_OV_FAILED = re.compile(r"-- \S+ with a message:(.*?)(?=-- \S+ with a message:|Summary:|$)", re.DOTALL)
_OV_NODE = re.compile(r"While validating ONNX node '<Node\(\w+\): ([^>]+)>':")


def openvino(message: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """Parse a list of operators without a rule, and a section for every operator whose first node failed."""
    found: list[Fallback] = []
    for names in _OV_UNKNOWN.findall(message):
        unknown = (name.strip().rpartition(".")[2] for name in names.split(","))
        found += _refuse_operators(unknown, graph, "OpenVINO has no conversion rule for {op}")
    made = {name: node for node in graph.all_nodes() for name in _output_names(node)}
    for section in _OV_FAILED.findall(message):
        node = next((made[name] for name in _OV_NODE.findall(section) if name in made), None)
        if node is not None:
            found.append(_refuse_node(node, _OV_NODE.sub("", section)))
    return Refused(tuple(found)) if found else _unparsed(message)


_MNN_UNKNOWN = re.compile(r"These Op Not Support: (.*?)(?: Converted Failed|$)", re.DOTALL)


def mnn(message: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """Parse the converter's list of operators that it lacks."""
    names = [name for text in _MNN_UNKNOWN.findall(message) for name in re.findall(r"ONNX::(\w+)", text)]
    found = _refuse_operators(names, graph, "MNN's converter has no {op}")
    return Refused(found) if found else _unparsed(message)


_NCNN_UNKNOWN = re.compile(r"layer (\S+) not exists or registered")


def ncnn(message: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """Parse the name of a missing layer: ONNX's or PyTorch's ("torch.eq"); ncnn stops at the first."""
    names = [name.rpartition(".")[2].lower() for name in _NCNN_UNKNOWN.findall(message)]
    operators = {_TORCH.get(node.op, node.op).lower(): node.op for node in graph.all_nodes()}
    found = _refuse_operators(
        (operators[name] for name in names if name in operators), graph, "ncnn has no layer for {op}"
    )
    return Refused(found) if found else _unparsed(message)


# PyTorch's name of an operator, if it differs.
_TORCH = {
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Cast": "to",
}

READERS: Mapping[str, Reader] = {"mnn": mnn, "ncnn": ncnn, "openvino": openvino, "tract": tract}

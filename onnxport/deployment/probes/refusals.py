"""Engines' own words of refusal, read as nodes of the model and reasons in its terms.

What they say is no interface: where a sentence has changed, it is shown as it is, of no node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from onnxport.core.errors import UsageError
from onnxport.deployment.report import Fallback
from onnxport.formats.artifact import Dim
from onnxport.formats.graph import Node, OperatorGraph
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.fixed_shapes import pinned

Sizes = Mapping[str, tuple[int, ...]]

_LONGEST = 300  # characters


@dataclass(frozen=True)
class Refused:
    """Attributes:
    fallbacks: the nodes that it refuses.
    why: what it says, where that is of no node.
    """

    fallbacks: tuple[Fallback, ...] = ()
    why: str = ""


Reader = Callable[[str, OperatorGraph, Model, Sizes], Refused]


def _plain(said: str) -> Refused:
    return Refused(why=" ".join(said.split())[:_LONGEST])


def _of_operators(names: Iterable[str], graph: OperatorGraph, why: str) -> tuple[Fallback, ...]:
    """Every node of these operators."""
    wanted = set(names)
    return tuple(
        Fallback(op=node.qualified, node=node.label, why=why.format(op=node.op))
        for node in graph.all_nodes()
        if node.op in wanted
    )


def _of_node(node: Node, why: str) -> Fallback:
    return Fallback(op=node.qualified, node=node.label, why=" ".join(why.split())[:_LONGEST])


_TRACT_NODE = re.compile(r'node #\d+ "([^"]+)"')
_TRACT_UNKNOWN = re.compile(r"Unimplemented\((\w+)\)")
_TRACT_SHAPES = re.compile(r"Impossible to unify|Unifying shapes")


def tract(said: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """Steps from the outermost node to the reason. The first unknown operator ends it: others may follow."""
    if unknown := _TRACT_UNKNOWN.findall(said):
        return Refused(_of_operators(unknown, graph, "tract has no {op}"))
    if _TRACT_SHAPES.search(said) and (contradicted := tuple(_contradicted(graph, model, sizes))):
        return Refused(contradicted)
    named = set(_TRACT_NODE.findall(said))
    found = [node for node in graph.all_nodes() if {node.label, *_made(node)} & named]
    if not found:
        return _plain(said)
    reason = said.rsplit('" ', 1)[-1].partition(": ")[2] or said
    return Refused((_of_node(found[-1], reason),))


def _contradicted(graph: OperatorGraph, model: Model, sizes: Sizes) -> Iterator[Fallback]:
    """Nodes whose results the file declares in another shape than follows from the sizes of the inputs."""
    declared = _declared(model)
    copy = model.clone()
    try:
        pinned(copy, sizes)
    except UsageError:
        return
    followed = _declared(copy)
    for node in graph.all_nodes():
        for name in _made(node):
            was, is_now = declared.get(name), followed.get(name)
            if was is not None and is_now is not None and was != is_now:
                yield _of_node(node, f"the file declares {name!r} as {_shown(was)}, {_shown(is_now)} follows")


def _declared(model: Model) -> dict[str, tuple[Dim, ...]]:
    outputs = set(model.graph.outputs)
    return {
        value.name: dims_of(value)
        for node in model.graph.all_nodes()
        for value in node.outputs
        if value.name and value.shape is not None and value not in outputs
    }


def _made(node: Node) -> Iterator[str]:
    return (each.name for each in node.outputs if each is not None)


def _shown(shape: Iterable[Dim]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


_OV_UNKNOWN = re.compile(r"No conversion rule found for operations: ([\w., ]+)")
_OV_FAILED = re.compile(r"-- \S+ with a message:(.*?)(?=-- \S+ with a message:|Summary:|$)", re.DOTALL)
_OV_NODE = re.compile(r"While validating ONNX node '<Node\(\w+\): ([^>]+)>':")


def openvino(said: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """A list of operators without a rule, and a section for every operator whose first node failed."""
    found: list[Fallback] = []
    for names in _OV_UNKNOWN.findall(said):
        unknown = (name.strip().rpartition(".")[2] for name in names.split(","))
        found += _of_operators(unknown, graph, "OpenVINO has no conversion rule for {op}")
    made = {name: node for node in graph.all_nodes() for name in _made(node)}
    for section in _OV_FAILED.findall(said):
        node = next((made[name] for name in _OV_NODE.findall(section) if name in made), None)
        if node is not None:
            found.append(_of_node(node, _OV_NODE.sub("", section)))
    return Refused(tuple(found)) if found else _plain(said)


_MNN_UNKNOWN = re.compile(r"These Op Not Support: (.*?)(?: Converted Failed|$)", re.DOTALL)


def mnn(said: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """Its converter lists the operators that it lacks."""
    names = [name for text in _MNN_UNKNOWN.findall(said) for name in re.findall(r"ONNX::(\w+)", text)]
    found = _of_operators(names, graph, "MNN's converter has no {op}")
    return Refused(found) if found else _plain(said)


_NCNN_UNKNOWN = re.compile(r"layer (\S+) not exists or registered")


def ncnn(said: str, graph: OperatorGraph, model: Model, sizes: Sizes) -> Refused:
    """pnnx leaves what it cannot translate under its own name or PyTorch's ("torch.eq"); the first ends the loading."""
    names = [name.rpartition(".")[2].lower() for name in _NCNN_UNKNOWN.findall(said)]
    operators = {_TORCH.get(node.op, node.op).lower(): node.op for node in graph.all_nodes()}
    found = _of_operators(
        (operators[name] for name in names if name in operators), graph, "ncnn has no layer for {op}"
    )
    return Refused(found) if found else _plain(said)


# PyTorch's name of an operator, where that is another.
_TORCH = {
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Cast": "to",
}

READERS: Mapping[str, Reader] = {"mnn": mnn, "ncnn": ncnn, "openvino": openvino, "tract": tract}

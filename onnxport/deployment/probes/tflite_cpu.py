"""LiteRT on the CPU: which nodes its interpreter gives to XNNPACK's delegate with default settings.

For an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from onnxport.core.errors import CannotConvertError
from onnxport.deployment.litert.conversion import ConvertedModel, convert_once
from onnxport.deployment.litert.interpreter import NotLoadedError, allocate, swap_main
from onnxport.deployment.probes import ProbeOptions, extent_of, refusal_placement
from onnxport.deployment.report import Placement
from onnxport.formats.graph import Node, Tensor, format_shape
from onnxport.formats.graph.tflite import Subgraph

_FALLBACK = "LiteRT's own kernels compute what XNNPACK does not take, on the CPU too"
_SIZES = "open sizes were taken as {}, since LiteRT does not load the model with 1"
_NOT_PROBED = "it is in a body that LiteRT does not load by itself, so it cannot be checked"


def probe(path: Path, options: ProbeOptions) -> Placement:
    """Load the file and let the interpreter delegate; nothing runs."""
    answer = options.placement(version("ai-edge-litert"))
    try:
        model = convert_once(path, options.shared)
        return _summarize(answer, model, find_partitions(model, options.threads))
    except CannotConvertError as error:
        return refusal_placement(path, answer, error)
    except NotLoadedError as error:
        return answer.model_copy(update={"extent": error.extent, "why": str(error)})


@dataclass(frozen=True)
class Partitions:
    """The partitions of the delegate."""

    taken: tuple[frozenset[Node], ...]  # the nodes of each partition
    size: int  # the size that stood for open dimensions of the inputs
    # The nodes of bodies that the interpreter does not load by themselves.
    not_probed: frozenset[Node] = frozenset()


def find_partitions(model: ConvertedModel, threads: int) -> Partitions:
    """Load the main graph, and each body of IF and WHILE in its place; NotLoadedError if it loads at no size tried."""
    interpreter, size = allocate(model.file.path, threads)
    taken, not_probed = _taken_groups(model.file.main, interpreter), set[Node]()
    for body in model.subgraphs[1:]:
        try:
            content = swap_main(model.file.path, body.index)
            taken += _taken_groups(body, allocate(content, threads)[0])
        except NotLoadedError:
            not_probed.update(body.graph.nodes)
    return Partitions(tuple(taken), size, frozenset(not_probed))


def _taken_groups(subgraph: Subgraph, interpreter: Any) -> list[frozenset[Node]]:
    nodes = subgraph.graph.nodes
    groups = delegated_operators(interpreter._get_ops_details(), len(nodes))
    return [frozenset(nodes[index] for index in group) for group in groups]


def _summarize(answer: Placement, model: ConvertedModel, found: Partitions) -> Placement:
    nodes = [node for each in model.subgraphs for node in each.graph.nodes]
    inside = frozenset().union(*found.taken)
    left = [node for node in nodes if node not in inside]
    return answer.model_copy(
        update={
            "extent": extent_of(len(inside), len(nodes)),
            "nodes": len(nodes),
            "taken": len(inside),
            "partitions": len(found.taken),
            "fallbacks": tuple(
                model.fallback(node, _NOT_PROBED if node in found.not_probed else refusal_reason(node))
                for node in left
            ),
            "notes": (_FALLBACK, *([_SIZES.format(found.size)] if found.size > 1 else [])),
        }
    )


_DELEGATE = "DELEGATE"


def delegated_operators(operators: Sequence[dict[str, Any]], count: int) -> list[set[int]]:
    """Return the partitions of the delegate, as places among the first `count` operators, those of the file.

    Args:
        operators: the interpreter's `_get_ops_details` after delegation: the file's operators, then one for each
            partition with the tensors that it reads from outside and gives to others. The partition lies between them.
    """
    made = {tensor: index for index, each in enumerate(operators[:count]) for tensor in each["outputs"]}
    found = []
    for each in operators[count:]:
        if each["op_name"] != _DELEGATE:
            continue
        outside = {int(tensor) for tensor in each["inputs"]}
        waiting, inside = [int(tensor) for tensor in each["outputs"]], set[int]()
        while waiting:
            tensor = waiting.pop()
            if tensor in outside or tensor not in made or made[tensor] in inside:
                continue
            inside.add(made[tensor])
            waiting += [int(source) for source in operators[made[tensor]]["inputs"]]
        found.append(inside)
    return found


def refusal_reason(node: Node) -> str:
    """Return why XNNPACK does not take `node`, as far as its source tells."""
    known = _known()
    if node.op not in known["operators"].split():
        return "XNNPACK has no such operator"
    types = known["types"].split()
    for index in known["constant"].get(node.op, ()):
        tensor = node.inputs[index] if index < len(node.inputs) else None
        if tensor is not None and not tensor.is_constant:
            return f"{tensor.name!r} is computed at run time, but it must be constant"
    for tensor in _computed(node):
        if tensor.dtype not in types:
            return f"{tensor.name!r} is {tensor.dtype}, it takes {', '.join(types)}"
        if tensor.shape is not None and len(tensor.shape) > known["most_dimensions"]:
            return f"rank {len(tensor.shape)} of {tensor.name!r}, at most {known['most_dimensions']}"
    if open_ := next((tensor for tensor in _computed(node) if not tensor.is_static), None):
        return f"the shape of {open_.name!r} is open: {format_shape(open_.shape)}"
    return "XNNPACK does not take this form of it"


def _computed(node: Node) -> list[Tensor]:
    return [
        tensor for tensor in (*node.inputs, *node.outputs) if tensor is not None and not tensor.is_constant
    ]


@cache
def _known() -> dict[str, Any]:
    import yaml

    text = files("onnxport.deployment.litert").joinpath("xnnpack.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded

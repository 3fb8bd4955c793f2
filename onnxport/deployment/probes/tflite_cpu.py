"""LiteRT on the CPU asked which nodes it gives to XNNPACK's delegate, as its interpreter does unless told otherwise.

Of an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnxport.core.errors import CannotConvertError
from onnxport.deployment.litert.conversion import Subject, subject
from onnxport.deployment.litert.interpreter import NotLoadedError, allocated, swap_main
from onnxport.deployment.litert.xnnpack import delegated, reason
from onnxport.deployment.probes import AskOptions
from onnxport.deployment.probes.conversion import refused
from onnxport.deployment.report import Extent, Placement
from onnxport.formats.graph import Node
from onnxport.formats.graph.tflite import Subgraph

_FALLBACK = "what XNNPACK does not take LiteRT's own kernels compute, on the CPU too"
_SIZES = "open sizes were taken as {}, since LiteRT does not load it with 1"
_UNASKED = "it is in a body that LiteRT does not load by itself, so that it cannot be asked"


def ask(path: Path, options: AskOptions) -> Placement:
    """Loads the file and has the interpreter delegate; nothing runs."""
    answer = Placement(
        runtime=options.runtime,
        title=options.title,
        how="asked",
        extent="none",
        version=version("ai-edge-litert"),
    )
    try:
        about = subject(path, options.shared)
        return _placed(answer, about, partitions_of(about, options.threads))
    except CannotConvertError as error:
        return refused(path, answer, error)
    except NotLoadedError as error:
        return answer.model_copy(update={"extent": error.extent, "why": str(error)})


@dataclass(frozen=True)
class Partitions:
    """What the delegate took.

    Attributes:
        taken: a set of nodes for each partition.
        size: what open dimensions of the inputs were taken as.
        unasked: the nodes of bodies that the interpreter does not load by themselves.
    """

    taken: tuple[frozenset[Node], ...]
    size: int
    unasked: frozenset[Node] = frozenset()


def partitions_of(about: Subject, threads: int) -> Partitions:
    """Asks the interpreter about the main graph, and about the bodies of IF and WHILE, each in the main graph's place.

    Raises:
        NotLoadedError: the interpreter does not load the file at any of the sizes that are tried.
    """
    interpreter, size = allocated(about.file.path, threads)
    taken, unasked = _taken(about.file.main, interpreter), set[Node]()
    for body in about.subgraphs[1:]:
        try:
            taken += _taken(body, allocated(swap_main(about.file.path, body.index), threads)[0])
        except NotLoadedError:
            unasked.update(body.graph.nodes)
    return Partitions(tuple(taken), size, frozenset(unasked))


def _taken(subgraph: Subgraph, interpreter: Any) -> list[frozenset[Node]]:
    nodes = subgraph.graph.nodes
    found = delegated(interpreter._get_ops_details(), len(nodes))
    return [frozenset(nodes[index] for index in each) for each in found]


def _placed(answer: Placement, about: Subject, found: Partitions) -> Placement:
    nodes = [node for each in about.subgraphs for node in each.graph.nodes]
    inside = frozenset().union(*found.taken)
    left = [node for node in nodes if node not in inside]
    extent: Extent = "all" if not left else "part" if inside else "none"
    return answer.model_copy(
        update={
            "extent": extent,
            "nodes": len(nodes),
            "taken": len(inside),
            "partitions": len(found.taken),
            "fallbacks": tuple(
                about.fallback(node, _UNASKED if node in found.unasked else reason(node)) for node in left
            ),
            "notes": (_FALLBACK, *([_SIZES.format(found.size)] if found.size > 1 else [])),
        }
    )

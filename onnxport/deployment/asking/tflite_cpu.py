"""LiteRT on the CPU asked which nodes it gives to XNNPACK's delegate, as its interpreter does unless told otherwise.

Of an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from onnxport.deployment.asking import AskOptions
from onnxport.deployment.litert.product import Subject, refused, subject
from onnxport.deployment.litert.interpreting import allocated
from onnxport.deployment.litert.xnnpack import delegated, reason
from onnxport.deployment.record import Extent, Placement
from onnxport.errors import CannotConvertError


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
        about = subject(path, options.folder)
    except CannotConvertError as error:
        return refused(path, answer, error)
    try:
        partitions, size = partitions_of(about, options.threads)
    except (RuntimeError, ValueError) as error:
        why = f"LiteRT cannot load it: {' '.join(str(error).split())[:300]}"
        return answer.model_copy(update={"extent": "unknown", "why": why})
    return _placed(answer, about, partitions, size)


def partitions_of(about: Subject, threads: int) -> tuple[list[set[int]], int]:
    """Which operators of the main graph each partition stands for, and the size that open dimensions were given.

    Raises:
        RuntimeError, ValueError: the interpreter does not load the file at any of the sizes that are tried.
    """
    interpreter, size = allocated(about.path, threads)
    return delegated(interpreter._get_ops_details(), len(about.file.nodes)), size


def _placed(answer: Placement, about: Subject, partitions: list[set[int]], size: int) -> Placement:
    nodes = about.file.nodes
    inside = set().union(*partitions)
    left = [node for index, node in enumerate(nodes) if index not in inside]
    extent: Extent = "all" if not left else "part" if inside else "none"
    bodies = sum(1 for graph in about.file.graph.graphs() for _ in graph.nodes) - len(nodes)
    notes = [f"the bodies of IF and WHILE have {bodies} more nodes, of which LiteRT does not tell"] * bool(bodies)
    if size > 1:
        notes.append(f"open sizes were taken as {size}, since LiteRT refuses smaller ones")
    if not partitions and nodes:
        notes.append("LiteRT's own kernels compute all of it")
    return answer.model_copy(
        update={
            "extent": extent,
            "nodes": len(nodes),
            "taken": len(inside),
            "partitions": len(partitions),
            "fallbacks": tuple(about.fallback(node, reason(node)) for node in left),
            "notes": tuple(notes),
        }
    )

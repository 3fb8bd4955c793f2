"""LiteRT on the CPU asked which nodes it gives to XNNPACK's delegate, as its interpreter does unless told otherwise.

Of an `.onnx` file the answer is about what `onnxport convert --to tflite` makes of it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from ai_edge_litert.interpreter import Interpreter

from onnxport.deployment.asking import AskOptions
from onnxport.deployment.litert.product import Subject, refused, subject
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
        interpreter: Any = Interpreter(model_path=str(about.path), num_threads=options.threads)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        return answer.model_copy(update={"why": f"LiteRT cannot load it: {' '.join(str(error).split())[:300]}"})
    partitions = delegated(interpreter._get_ops_details(), len(about.file.nodes))
    return _placed(answer, about, partitions)


def _placed(answer: Placement, about: Subject, partitions: list[set[int]]) -> Placement:
    nodes = about.file.nodes
    inside = set().union(*partitions)
    left = [node for index, node in enumerate(nodes) if index not in inside]
    extent: Extent = "all" if not left else "part" if inside else "none"
    bodies = sum(1 for graph in about.file.graph.graphs() for _ in graph.nodes) - len(nodes)
    notes = [f"the bodies of IF and WHILE have {bodies} more nodes, of which LiteRT does not tell"] * bool(bodies)
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

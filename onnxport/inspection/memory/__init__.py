"""The memory and the arithmetic of one run of a model, planned without running it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from onnx_ir.passes import common

from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import Artifact, Dim, TensorSpec
from onnxport.formats.graph import OperatorGraph
from onnxport.formats.input_shapes import GivenShape, apply_shapes
from onnxport.inspection.memory.buffers import LITERT, ORT
from onnxport.inspection.memory.execution_order import in_execution_order
from onnxport.inspection.memory.plan import plan_graph
from onnxport.inspection.memory.report import MemoryPlan

__all__ = ["MemoryPlan", "plan_memory"]


def plan_memory(path: str | os.PathLike[str], shapes: Mapping[str, GivenShape] | None = None) -> MemoryPlan:
    """Plan the activations of one run of the model at `path`.

    Args:
        path: an `.onnx`, `.ort` or `.tflite` file.
        shapes: sizes of open dimensions of an `.onnx` file; an open first dimension is 1 unless given.

    Raises:
        UsageError: another format, an open size that was not given, or sizes that contradict the model.
        InputError: a file that is missing or damaged.
    """
    artifact = Artifact.open(path)
    if artifact.format == "onnx":
        return _plan_ort(_onnx_graph(artifact.path, shapes or {}))
    if artifact.format == "coreml":
        raise UsageError(
            "the memory of an .mlpackage is Core ML's own decision",
            fix="plan the .onnx file it was made from",
        )
    if shapes:
        raise UsageError(
            f"--shape cannot change the sizes of {artifact.path}", fix="convert the model with --shape"
        )
    if artifact.format == "tflite":
        from onnxport.formats.graph.tflite import read_tflite

        model = read_tflite(artifact.path, distinct=True, sized=True)
        return plan_graph(model.main.graph, LITERT, "LiteRT")
    from onnxport.formats.graph.ort import read_ort

    graph = read_ort(artifact.path).graph
    if any(not each.is_static for each in graph.inputs):
        raise UsageError(
            f"{artifact.path} has open sizes",
            why="shapes of an .ort file stay as they were inferred",
            fix="plan the .onnx file it was made from, with --shape",
        )
    return _plan_ort(graph)


def _plan_ort(graph: OperatorGraph) -> MemoryPlan:
    in_execution_order(graph)
    return plan_graph(graph, ORT, "ONNX Runtime")


def _onnx_graph(path: Path, shapes: Mapping[str, GivenShape]) -> OperatorGraph:
    """Return the graph with all functions inlined and every shape inferred at the given sizes."""
    from onnxport.formats.graph.onnx import from_ir
    from onnxport.formats.model import Model
    from onnxport.optimizers.shape_inference import drop_declared, infer, pin_inputs

    model = Model.load(path).clone()
    if model.ir.functions:
        common.InlinePass()(model.ir)
    pin_inputs(model, _sizes(path, model.inputs, shapes))
    drop_declared(model)
    infer(model)
    return from_ir(model.ir)


def _sizes(
    path: Path, inputs: tuple[TensorSpec, ...], given: Mapping[str, GivenShape]
) -> dict[str, tuple[int, ...]]:
    """Return every input's sizes; UsageError where one is open, but for the batch."""
    merged = apply_shapes(inputs, given)
    batches = {dims[0] for dims in merged.values() if dims and isinstance(dims[0], str)}
    sizes: dict[str, tuple[int, ...]] = {}
    lacking = []
    for spec in inputs:
        dims = [
            1 if not isinstance(dim, int) and (axis == 0 or dim in batches) else dim
            for axis, dim in enumerate(merged[spec.name])
        ]
        known = tuple(dim for dim in dims if isinstance(dim, int))
        if len(known) < len(dims):
            lacking.append(quote_option("--shape", f"{spec.name}={','.join(_text(dim) for dim in dims)}"))
        sizes[spec.name] = known
    if lacking:
        raise UsageError(
            f"{path} has open sizes, which decide its memory", fix=f"give them: {' '.join(lacking)}"
        )
    return sizes


def _text(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else "SIZE"

"""Sizes from the user (`--shape`) written into a model."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_ir import Shape

from onnxport.formats.artifact import Dim
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.shape_inference import drop_declared, infer, pin_inputs


def pin_shapes(model: Model, shapes: Mapping[str, GivenShape]) -> tuple[str, ...]:
    """Fix open dimensions of the inputs in place and infer the other shapes again; return a sentence on them, if any.

    An output that inference cannot follow keeps its declared shape, with the fixed sizes put in.

    Raises:
        UsageError: an unknown input, or sizes that contradict the model.
    """
    before = {spec.name: spec.shape for spec in model.inputs}
    declared = {value.name: dims_of(value) for value in model.graph.outputs if value.shape is not None}
    pin_inputs(model, shapes)
    fixed = [
        (name, axis, was, dim)
        for name, after in ((spec.name, spec.shape) for spec in model.inputs)
        for axis, (was, dim) in enumerate(zip(before[name], after, strict=True))
        if isinstance(dim, int) and not isinstance(was, int)
    ]
    drop_declared(model)
    infer(model)
    for value in model.graph.outputs:
        if value.shape is None and value.name in declared:
            value.shape = Shape(declared[value.name])
    sizes: dict[Dim, Dim] = {was: dim for _, _, was, dim in fixed if was is not None}
    # Operators that inference does not know keep their declared shapes.
    for value in (value for node in model.graph.all_nodes() for value in node.outputs):
        if value.shape is not None:
            value.shape = Shape([sizes.get(dim, dim) for dim in dims_of(value)])
    named = [f"{name}[{axis}]" + (f" {was}" if was else "") + f" = {dim}" for name, axis, was, dim in fixed]
    return (f"fixed for these sizes alone: {', '.join(named)}",) if named else ()


def resize_inputs(model: Model, shapes: Mapping[str, GivenShape]) -> tuple[str, ...]:
    """Replace sizes that the file fixes at its inputs, in place, as an engine with resizable inputs does.

    Inner shapes stay as declared; outputs become open. Returns a sentence for each such input.
    """
    notes = []
    for value in model.graph.inputs:
        given = shapes.get(value.name or "", ())
        declared = dims_of(value) if value.shape is not None else ()
        if len(given) != len(declared):
            continue
        pairs = list(zip(declared, given, strict=True))
        if any(isinstance(was, int) and isinstance(now, int) and was != now for was, now in pairs):
            value.shape = Shape([now if isinstance(now, int) else was for was, now in pairs])
            asked = list(dims_of(value))
            notes.append(f"the file fixes {value.name!r} at {list(declared)}; the answer is for {asked}")
    if notes:
        for value in model.graph.outputs:
            value.shape = None if value.shape is None else Shape([None] * len(value.shape))
    return tuple(notes)

"""Sizes from the user (`--shape`) written into a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx_ir import Shape, Value

from onnxport.formats.artifact import Dim
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.shape_inference import drop_declared, infer, pin_inputs


def pin_shapes(model: Model, shapes: Mapping[str, GivenShape]) -> tuple[str, ...]:
    """Fix open dimensions of the inputs in place and infer the other shapes again.

    An output that inference cannot follow keeps its declared shape, with the fixed sizes put in.

    Returns:
        A sentence on the fixed sizes, if there are any.

    Raises:
        UsageError: an unknown input, or sizes that contradict the model.
    """
    before = {spec.name: spec.shape for spec in model.inputs}
    declared = {value.name: dims_of(value) for value in model.graph.outputs if value.shape is not None}
    pin_inputs(model, shapes)
    after = {spec.name: spec.shape for spec in model.inputs}
    sizes = _fixed_symbols(before, after)
    drop_declared(model)
    infer(model)
    for value in model.graph.outputs:
        if value.shape is None and value.name in declared:
            value.shape = Shape(declared[value.name])
    for value in _node_results(model):
        if value.shape is not None:
            value.shape = Shape([sizes.get(dim, dim) for dim in dims_of(value)])
    fixed = [
        f"{name}[{axis}]" + (f" {was}" if was else "") + f" = {dim}"
        for name in before
        for axis, (was, dim) in enumerate(zip(before[name], after[name], strict=True))
        if isinstance(dim, int) and not isinstance(was, int)
    ]
    return (f"fixed for these sizes alone: {', '.join(fixed)}",) if fixed else ()


def resize_inputs(model: Model, shapes: Mapping[str, GivenShape]) -> tuple[str, ...]:
    """Replace sizes that the file fixes at its inputs, in place, as an engine with resizable inputs does. Inner
    shapes stay as declared; outputs become open.

    Returns:
        A sentence for each such input.
    """
    notes = []
    for value in model.graph.inputs:
        given = shapes.get(value.name or "", ())
        declared = dims_of(value) if value.shape is not None else ()
        if len(given) == len(declared) and any(map(_is_resized, declared, given)):
            value.shape = Shape(
                [now if isinstance(now, int) else was for was, now in zip(declared, given, strict=True)]
            )
            asked = list(dims_of(value))
            notes.append(f"the file fixes {value.name!r} at {list(declared)}; the answer is for {asked}")
    if notes:
        for value in model.graph.outputs:
            value.shape = None if value.shape is None else Shape([None] * len(value.shape))
    return tuple(notes)


def _is_resized(was: Dim, now: int | str | None) -> bool:
    return isinstance(was, int) and isinstance(now, int) and was != now


def _node_results(model: Model) -> Iterator[Value]:
    """Iterate over all node results: operators that inference does not know keep their declared shapes."""
    return (value for node in model.graph.all_nodes() for value in node.outputs)


def _fixed_symbols(
    before: Mapping[str, tuple[Dim, ...]], after: Mapping[str, tuple[Dim, ...]]
) -> dict[Dim, Dim]:
    """Map each dimension's symbol to its new size."""
    return {
        was: now
        for name in before
        for was, now in zip(before[name], after[name], strict=True)
        if isinstance(was, str) and isinstance(now, int)
    }

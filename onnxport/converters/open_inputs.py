"""Fills in `--shape NAME=...`, which lowerings write into refusals: the open inputs that the node depends on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import onnx_ir as ir

from onnxport.converters.lowering import node_name, qualified_op
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model, spec_of

_PLACEHOLDER = "--shape NAME=..."
# The clause with the placeholder, up to the end of the sentence.
_ADVICE = re.compile(rf"[;,] [^;,]*{re.escape(_PLACEHOLDER)}[^;]*")
_MOST = 3  # inputs to name


def explain_refusals(error: CannotConvertError, model: Model, target: str) -> CannotConvertError:
    """Return the child's error with the model and the target named, and its refusals' placeholders filled in."""
    what = f"{model.path} cannot be converted to {target}, {error.what}"
    refusals = fill_placeholders(error.refusals, model)
    return CannotConvertError(what, why=error.why, fix=error.fix, refusals=refusals)


def fill_placeholders(refusals: Iterable[Refusal], model: Model) -> list[Refusal]:
    """Fill in `--shape NAME=...` for the prepared `model`; remove it if no input is open."""
    return [
        replace(refusal, why=_fill_placeholder(refusal, model)) if _PLACEHOLDER in refusal.why else refusal
        for refusal in refusals
    ]


def _fill_placeholder(refusal: Refusal, model: Model) -> str:
    opened = _open_inputs(refusal, model)
    if not opened:
        return _ADVICE.sub("", refusal.why)
    sizes = {spec.name: [_dim(spec, axis) for axis in range(len(spec.shape))] for spec in opened[:_MOST]}
    options = quote_option("--shape", *(f"{name}={','.join(dims)}" for name, dims in sizes.items()))
    more = f" and the {len(opened) - _MOST} other open inputs likewise" if len(opened) > _MOST else ""
    names = dict.fromkeys(sizes[spec.name][axis] for spec in opened[:_MOST] for axis in _open_axes(spec))
    return refusal.why.replace(_PLACEHOLDER, f"{options} (a number for {', '.join(names)}){more}")


def _open_inputs(refusal: Refusal, model: Model) -> list[TensorSpec]:
    """Return the open inputs that the refused node depends on; all if there is no such node or input."""
    opened = {
        value: spec_of(value)
        for value in model.graph.inputs
        if value.name not in model.graph.initializers and _open_axes(spec_of(value))
    }
    nodes = [
        node
        for node in model.graph
        if any(
            node_name(each) == refusal.node and qualified_op(each) == refusal.op
            for each in _walk_subgraphs(node)
        )
    ]
    reached = _sources(nodes)
    return [spec for value, spec in opened.items() if value in reached] or list(opened.values())


def _sources(nodes: list[ir.Node]) -> set[ir.Value]:
    """Return every value that nodes of the main graph depend on."""
    seen: set[ir.Value] = set()
    waiting = list(nodes)
    while waiting:
        for each in _walk_subgraphs(waiting.pop()):
            fresh = {value for value in each.inputs if value is not None} - seen
            seen |= fresh
            waiting += [producer for value in fresh if (producer := value.producer()) is not None]
    return seen


def _walk_subgraphs(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the node and those of its branches or its body."""
    yield node
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            yield from attribute.as_graph().all_nodes()


def _open_axes(spec: TensorSpec) -> list[int]:
    return [axis for axis, dim in enumerate(spec.shape) if not isinstance(dim, int)]


def _dim(spec: TensorSpec, axis: int) -> str:
    """Return a size, or the name of an open one; DIM1 for the names of inputs and axes that pin_inputs makes up."""
    dim = spec.shape[axis]
    if dim is None or dim == f"{spec.name}.{axis}":
        return f"DIM{axis}"
    return str(dim)

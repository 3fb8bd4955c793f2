"""Operators that an older opset lacks, written as formulas by the rewritings that converters use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.formats.model import Model
from onnxport.optimizers import rewrites, shape_inference  # noqa: F401 - rewrites fills its registry
from onnxport.optimizers.opset.errors import PART_OF, part_of
from onnxport.optimizers.opset.schemas import is_default, schema
from onnxport.optimizers.opset.upgrade import lift
from onnxport.optimizers.params import CANONICAL_OPSET
from onnxport.optimizers.rewrites.registry import rewrite, rewritten_ops

_HALF_PIXEL_ROIS = 16  # the opset since which RoiAlign counts from the pixels' centres


def rewrite_beyond(model: ir.Model, opset: int, to: int) -> int:
    """Rewrite operators that `to` lacks as formulas, where there are such; return the model's opset afterwards.

    Formulas use the canonical opset, to which an older model is lifted first.
    """
    nodes = filter(is_default, model.graph.all_nodes())
    wanted = {node.op_type for node in nodes if _is_beyond(node, opset, to)} & rewritten_ops()
    if not wanted:
        return opset
    lift(model, max(opset, CANONICAL_OPSET))
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    before = list(model.graph.all_nodes())
    makers = {
        node.outputs[0].name: part_of(node) for node in before if is_default(node) and node.op_type in wanted
    }
    with _declared_shapes(model):
        whole = Model(model)
        shape_inference.infer(whole)
        rewrite(whole, (), only=wanted)
    for node in set(model.graph.all_nodes()) - set(before):
        node.metadata_props[PART_OF] = makers.get((node.name or "").rpartition("/")[0], part_of(node))
    return max(opset, CANONICAL_OPSET)


def _is_beyond(node: ir.Node, opset: int, to: int) -> bool:
    if schema(node.op_type, opset) and not schema(node.op_type, to):
        return True
    if node.op_type != "RoiAlign" or not to < _HALF_PIXEL_ROIS <= opset:
        return False
    mode = node.attributes.get("coordinate_transformation_mode")
    return mode is None or mode.value == "half_pixel"


@contextmanager
def _declared_shapes(model: ir.Model) -> Iterator[None]:
    """Restore the declared shapes at exit of the block."""
    inside = {value: value.shape for node in model.graph.all_nodes() for value in node.outputs}
    ports = {value.name: value.shape for graph in model.graphs() for value in (*graph.inputs, *graph.outputs)}
    yield
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.outputs):
            value.shape = ports.get(value.name)
    for value, shape in inside.items():
        value.shape = shape

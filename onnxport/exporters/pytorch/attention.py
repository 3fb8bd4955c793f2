"""Fully masked attention: torch returns zeros, a softmax over -inf alone returns NaN.

torch.onnx guards boolean masks against that, but not the float masks of nn.TransformerEncoder.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxport.formats.model import Model

_FROM = "pkg.torch.onnx.fx_node"  # where torch.onnx notes which node of the program it translates
_ATTENTION = "scaled_dot_product_attention"


def guard_masked_attention(model: Model) -> None:
    """Replace NaN by 0 behind the softmax of attention whose mask depends on an input."""
    for node in list(model.graph.all_nodes()):
        if (
            node.op_type == "Softmax"
            and _ATTENTION in node.metadata_props.get(_FROM, "")
            and _is_masked(node)
        ):
            _guard(node)


def _is_masked(softmax: ir.Node) -> bool:
    scores = softmax.inputs[0]
    added = scores.producer() if scores is not None else None
    if added is None or added.op_type != "Add":
        return False
    if any(use.node.op_type == "IsNaN" for use in softmax.outputs[0].uses()):
        return False
    return _depends_on_inputs(added.inputs[1])


def _depends_on_inputs(value: ir.Value | None) -> bool:
    """Return whether a value depends on input values; a causal mask depends on sizes only."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        each = waiting.pop()
        if each is None or each in seen:
            continue
        seen.add(each)
        if each.is_graph_input():
            return True
        producer = each.producer()
        if producer is not None and producer.op_type != "Shape":
            waiting.extend(producer.inputs)
    return False


def _guard(softmax: ir.Node) -> None:
    weights = softmax.outputs[0]
    nothing = ir.node("IsNaN", [weights])
    zero = ir.node("Constant", [], {"value": ir.tensor(weights.dtype.numpy().type(0))})  # type: ignore[union-attr]
    kept = ir.node("Where", [nothing.outputs[0], zero.outputs[0], weights])
    for node in (nothing, zero, kept):
        node.metadata_props.update(softmax.metadata_props)
    kept.outputs[0].type, kept.outputs[0].shape = weights.type, weights.shape
    uses = [use for use in weights.uses() if use.node not in (nothing, kept)]
    softmax.graph.insert_after(softmax, [nothing, zero, kept])  # type: ignore[union-attr]
    for use in uses:
        use.node.replace_input_with(use.idx, kept.outputs[0])

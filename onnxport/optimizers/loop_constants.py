"""Constants that a Loop hands from step to step unchanged: its body reads them instead.

Keras' recurrent layers, exported by way of TensorFlow, carry their weights as states. A target then has them twice: as
a state, and in the form that its products take.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.model import Model

# A Loop's first inputs, and its body's, before the states; the body's first output is the condition.
_BEFORE = 2


def capture_constants(model: Model) -> int:
    """Let bodies read the constants among the states of Loops; return how many states these were."""
    loops = [
        node for node in model.graph.all_nodes() if node.op_type == "Loop" and node.domain in ("", "ai.onnx")
    ]
    return sum(_capture(loop) for loop in loops)


def _capture(loop: ir.Node) -> int:
    body = loop.attributes["body"].as_graph()
    states = range(len(loop.inputs) - _BEFORE)
    kept = [number for number in states if not _is_unchanged(loop, body, number)]
    gone = sorted({*states} - {*kept}, reverse=True)
    for number in gone:
        given = loop.inputs[_BEFORE + number]
        assert given is not None, "_is_unchanged"
        own = body.inputs.pop(_BEFORE + number)
        body.outputs.pop(1 + number)
        own.replace_all_uses_with(given)
        loop.outputs[number].replace_all_uses_with(given)
    if gone:
        _drop_states(loop, kept, len(states))
    return len(gone)


def _is_unchanged(loop: ir.Node, body: ir.Graph, number: int) -> bool:
    """Return whether a state is a constant that the body returns as it is."""
    given, own = loop.inputs[_BEFORE + number], body.inputs[_BEFORE + number]
    result: ir.Value | None = body.outputs[1 + number]
    while result is not None and (node := result.producer()) is not None and node.op_type == "Identity":
        result = node.inputs[0]
    others = [value for place, value in enumerate(body.outputs) if place != 1 + number]
    return (
        result is own
        and own not in others
        and constant_tensor(given) is not None
        and not loop.outputs[number].is_graph_output()
    )


def _drop_states(loop: ir.Node, kept: list[int], states: int) -> None:
    """Replace a Loop by one with the kept states; scan outputs follow them."""
    outputs = [loop.outputs[number] for number in (*kept, *range(states, len(loop.outputs)))]
    inputs = [*loop.inputs[:_BEFORE], *(loop.inputs[_BEFORE + number] for number in kept)]
    body = loop.attributes.pop("body")
    made = ir.node("Loop", inputs, num_outputs=len(outputs), name=loop.name)
    made.attributes.add(body)
    graph = loop.graph
    assert graph is not None
    graph.insert_before(loop, made)
    for new, old in zip(made.outputs, outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        name = old.name
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name, new.name = f"{name}/before", name
    graph.remove(loop, safe=True)

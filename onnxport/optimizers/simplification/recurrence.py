"""Recurrent layers."""

from __future__ import annotations

from onnxport.optimizers.simplification.constants import zeros
from onnxport.optimizers.simplification.graph import Scene
from onnxport.optimizers.simplification.registry import simplification

_RECURRENT = ("GRU", "LSTM", "RNN")
# B, the initial states and, of an LSTM, the peepholes: what is not given is 0.
_OPTIONAL = (3, 5, 6, 7)


@simplification(
    "drop-zero-states",
    "Leaves out initial states, biases and peepholes of recurrent layers that are 0, which is what they are without.",
)
def drop_zero_states(scene: Scene) -> int:
    dropped = 0
    for node in scene.nodes(*_RECURRENT):
        for index in _OPTIONAL:
            if index < len(node.inputs) and zeros(node.inputs[index]):
                node.replace_input_with(index, None)
                dropped += 1
        while node.inputs and node.inputs[-1] is None:
            node.resize_inputs(len(node.inputs) - 1)
    return dropped

"""The declaration of a quantized model's calibration, by the names that its values have in a `.tflite` file."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.formats.quantization_note import NOTE_KEY, QuantizationNote, round_means


def rename_note(model: Model) -> str | None:
    """Return the model's note with means by the value that the file has of each product; None without a note.

    The compiler fuses what follows a product, and names the result after the last of these nodes.
    """
    note = QuantizationNote.from_json(model.ir.metadata_props.get(NOTE_KEY))
    if note is None:
        return None
    named = {node.name: node.outputs[0] for node in model.graph if node.name in note.means}
    means = {
        _result_of_fusion(value).name or "": round_means(note.means[name])
        for name, value in named.items()
        if name
    }
    return QuantizationNote(note.ranges, means, note.factors).to_json()


def _result_of_fusion(value: ir.Value) -> ir.Value:
    """Return the last value before the grid of a product's result."""
    while len(users := list(value.uses())) == 1 and not value.is_graph_output():
        user = users[0][0]
        if user.op_type in ("QuantizeLinear", "DequantizeLinear") or len(user.outputs) != 1:
            break
        if any(
            each is not None and each is not value and each.producer() is not None for each in user.inputs
        ):
            break
        value = user.outputs[0]
    return value

"""Outputs that choose among constant texts, such as a classifier's labels: they give the text's number instead.

The targets have no tensors of texts. The number's meaning is noted at the output (`formats/numbered_texts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.formats.numbered_texts import note_texts

# Operators that move elements and look at none -> the inputs whose elements they move; None for all.
_MOVES: Mapping[str, tuple[int, ...] | None] = {
    "Cast": (0,),
    "Concat": None,
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "GatherElements": (0,),
    "GatherND": (0,),
    "Identity": (0,),
    "Reshape": (0,),
    "Slice": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unsqueeze": (0,),
    "Where": (1, 2),
}


def number_texts(model: Model) -> dict[str, tuple[str, ...]]:
    """Rewrite, in place, outputs that only choose among constant texts, to give int64 positions in a list of these.

    Returns:
        Name of each such output -> its texts. An output that depends on texts in another way stays as it is.
    """
    found = {}
    for output in model.graph.outputs:
        note_texts(output, ())  # a source could have one
        if output.dtype != ir.DataType.STRING:
            continue
        values = _trace(output)
        if values is not None:
            texts = _number(values)
            note_texts(output, texts)
            found[output.name or ""] = texts
    return found


def _trace(output: ir.Value) -> list[ir.Value] | None:
    """Return all values of texts that lead to an output; None where one is computed or used in another way."""
    waiting, seen = [output], {output: None}
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if node is None:
            if value.const_value is None:  # an input
                return None
            continue
        if node.domain not in ("", "ai.onnx") or node.op_type not in _MOVES:
            return None
        places = _MOVES[node.op_type]
        moved = [node.inputs[i] for i in (range(len(node.inputs)) if places is None else places)]
        if any(each is None or each.dtype != ir.DataType.STRING for each in moved):
            return None
        fresh = [each for each in moved if each is not None and each not in seen]
        seen |= dict.fromkeys(fresh)
        waiting += fresh
    return list(seen) if all(_is_private(value, seen, output) for value in seen) else None


def _is_private(value: ir.Value, known: Mapping[ir.Value, None], output: ir.Value) -> bool:
    """Return whether nothing but the known values, and the one output, reads a value."""
    read = all(result in known for node, _ in value.uses() for result in node.outputs)
    return read and (value is output or not value.is_graph_output())


def _number(values: list[ir.Value]) -> tuple[str, ...]:
    """Replace the texts of constants by their positions; return the texts in the order of their first place."""
    constants = [value for value in values if value.const_value is not None]
    arrays = [_texts(value) for value in constants]
    texts = tuple(dict.fromkeys(text for array in arrays for text in array.ravel().tolist()))
    position = {text: i for i, text in enumerate(texts)}
    for value, array in zip(constants, arrays, strict=True):
        numbers = np.asarray([position[text] for text in array.ravel().tolist()], np.int64)
        value.const_value = ir.Tensor(numbers.reshape(array.shape), name=value.name)
    for value in values:
        value.type = ir.TensorType(ir.DataType.INT64)  # a clone shares its types with the source
        node = value.producer()
        if node is not None and node.op_type == "Cast":
            node.attributes["to"] = ir.AttrInt64("to", ir.DataType.INT64)
    return texts


def _texts(value: ir.Value) -> np.ndarray[tuple[int, ...], np.dtype[np.object_]]:
    assert value.const_value is not None, "called for constants"
    array = value.const_value.numpy()
    decoded = [
        text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in array.ravel()
    ]
    return np.asarray(decoded, dtype=object).reshape(array.shape)

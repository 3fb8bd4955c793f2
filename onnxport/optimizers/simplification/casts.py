"""Chains of Cast."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.optimizers.simplification.graph import ModelEditor, bypass, producer, rewrite
from onnxport.optimizers.simplification.registry import simplification


@simplification("merge-casts")
def merge_casts(editor: ModelEditor) -> int:
    """Replace two Casts by one, or by none, where the first loses nothing.

    Keeps: A first Cast that rounds or truncates: float32 to float16, int64 to int32.
    """
    merged = 0
    for node in editor.nodes("Cast"):
        before = producer(node.inputs[0], "Cast")
        source = None if before is None else before.inputs[0]
        if before is None or source is None or not _widens(source.dtype, node.inputs[0].dtype):  # type: ignore[union-attr]
            continue
        if source.dtype == node.attributes.get_int("to"):
            merged += bypass(node, source)
        else:
            merged += rewrite(node, "Cast", [source], dict(node.attributes))
    return merged


# Type -> types that hold all its values and cast on to the same results.
_WIDER = {
    ir.DataType.BOOL: "INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 FLOAT16 BFLOAT16 FLOAT DOUBLE",
    ir.DataType.INT8: "INT16 INT32 INT64 FLOAT16 FLOAT DOUBLE",
    ir.DataType.UINT8: "INT16 UINT16 INT32 UINT32 INT64 UINT64 FLOAT16 FLOAT DOUBLE",
    ir.DataType.INT16: "INT32 INT64 FLOAT DOUBLE",
    ir.DataType.UINT16: "INT32 UINT32 INT64 UINT64 FLOAT DOUBLE",
    ir.DataType.INT32: "INT64 DOUBLE",
    ir.DataType.FLOAT16: "FLOAT DOUBLE",
    ir.DataType.BFLOAT16: "FLOAT DOUBLE",
    ir.DataType.FLOAT: "DOUBLE",
}


def _widens(source: ir.DataType | None, target: ir.DataType | None) -> bool:
    return source is not None and target is not None and target.name in _WIDER.get(source, "").split()

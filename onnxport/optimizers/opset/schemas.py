"""Facts from ONNX's operator schemas at an opset."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir


def default_domain(opset_imports: Mapping[str, int]) -> int | None:
    """Return the default domain's version; "ai.onnx" is its other spelling (ONNX IR, Operator Sets)."""
    return opset_imports.get("", opset_imports.get("ai.onnx"))


def set_opset(model: ir.Model, opset: int) -> None:
    """Set the version of the model's default domain."""
    model.opset_imports.pop("ai.onnx", None)
    model.opset_imports[""] = opset


def is_default(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx")


def schema(op: str, opset: int) -> onnx.defs.OpSchema | None:
    """Return the schema that a model of `opset` uses; None for an operator that is unknown, newer or removed."""
    try:
        found = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else found


def since(op: str, opset: int) -> int:
    """Return the operator version that a model of `opset` uses, 0 if there is none."""
    try:
        return int(onnx.defs.get_schema(op, opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def type_name(found: ir.TypeProtocol) -> str:
    """Spell a type as ONNX's schemas do: tensor(float16), seq(tensor(int64))."""
    if isinstance(found, ir.SequenceType):
        return f"seq({type_name(found.elem_type)})"
    if isinstance(found, ir.OptionalType):
        return f"optional({type_name(found.elem_type)})"
    kind = "sparse_tensor" if isinstance(found, ir.SparseTensorType) else "tensor"
    return f"{kind}({found.dtype.name.lower()})"

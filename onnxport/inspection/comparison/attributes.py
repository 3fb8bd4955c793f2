"""How the attributes of two nodes differ; one that is left out has its default."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxport.inspection.comparison.report import Detail


class _Body(str):
    """The graph of an If, Loop or Scan in words, with a digest of all that it holds."""


def compare_attributes(node: ir.Node, partner: ir.Node, opset: int, other: int) -> Iterator[Detail]:
    """Yield what differs between the attributes of two nodes, each of a model of its opset."""
    before, after = _attributes(node, opset), _attributes(partner, other)
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            is_body = isinstance(before.get(name), _Body)
            yield Detail(
                kind="body" if is_body else "attribute",
                what=f"attribute {name}",
                before=_words(before.get(name, "")),
                after=_words(after.get(name, "")),
            )


def _words(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_words, value))}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _attributes(node: ir.Node, opset: int) -> dict[str, Any]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    found = {}
    try:
        schema = onnx.defs.get_schema(node.op_type, node.version or opset, domain)
        defaults = {name: each.default_value for name, each in schema.attributes.items()}
        found = {
            name: _plain(ir.serde.deserialize_attribute(default))
            for name, default in defaults.items()
            if default.type
        }
    except onnx.defs.SchemaError:  # an operator that ONNX does not define
        pass
    return found | {name: _plain(attribute) for name, attribute in node.attributes.items()}


def _plain(attribute: ir.Attr) -> Any:
    """Return an attribute's value as something that compares."""
    value = attribute.value
    if attribute.type == ir.AttributeType.GRAPH:
        digest = sha256(ir.serde.serialize_graph(value).SerializeToString(deterministic=True)).hexdigest()
        return _Body(f"a graph of {len(value)} nodes, SHA-256 {digest[:8]}")
    if attribute.type == ir.AttributeType.TENSOR:
        return np.asarray(value.numpy()).tolist()
    return list(value) if isinstance(value, tuple) else value

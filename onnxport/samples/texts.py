"""Which texts a column of strings may hold: those that ai.onnx.ml's encoders list."""

from __future__ import annotations

import onnx_ir as ir

# Operator -> the attribute that lists the texts it knows.
_LISTED = {"OneHotEncoder": "cats_strings", "LabelEncoder": "keys_strings", "CategoryMapper": "cats_strings"}
# A text that no encoder knows, where that has an answer, too.
_UNSEEN = "unseen"


def texts_of(node: ir.Node) -> tuple[str, ...]:
    """The texts that `node` knows; nothing where it is no encoder of texts."""
    name = _LISTED.get(node.op_type, "") if node.domain == "ai.onnx.ml" else ""
    if name not in node.attributes:
        return ()
    known = tuple(str(text) for text in node.attributes[name].as_strings())
    zeros = node.attributes.get("zeros")
    takes_any = node.op_type != "OneHotEncoder" or zeros is None or zeros.as_int() == 1
    return (*known, _UNSEEN) if known and takes_any else known

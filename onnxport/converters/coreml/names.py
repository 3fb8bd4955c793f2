"""Names of variables in MIL: unique identifiers that Core ML does not reserve."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Marks the names of variables inside a node's lowering, which hold no ONNX value.
INNER = "_inner_"
# MIL's keywords, which coremltools would rename silently.
_RESERVED = frozenset(
    (
        "any bool program func tensor list dict tuple true false string bf16 fp16 fp32 fp64 int8 int16 int32 int64 "
        "uint8 uint16 uint32 uint64 state main"
    ).split()
)
# Names of a classifier's outputs, as apps ask for them.
PREDICTED, PROBABILITIES = "classLabel", "classLabel_probs"


class Keys:
    """Assigns one identifier per ONNX name.

    Args:
        taken: identifiers in use.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used: set[str] = set(taken)

    def key(self, name: str) -> str:
        """Return an identifier for `name`: the name itself if it is a free identifier."""
        base = re.sub(r"[^A-Za-z0-9_]", "_", name) or "value"
        base = base.replace(INNER, "_inner__")
        if base[0].isdigit() or base in _RESERVED:
            base = f"v_{base}"
        key, count = base, 1
        while key in self._used:
            key, count = f"{base}_{count}", count + 1
        self._used.add(key)
        return key

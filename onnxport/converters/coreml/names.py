"""What variables are called in MIL: identifiers, each used once, none of them a word that Core ML keeps for itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Marks the names of variables inside a node's lowering, which stand for no ONNX value.
INNER = "_inner_"
# MIL's own words: coremltools would rename them in silence.
_RESERVED = frozenset(
    (
        "any bool program func tensor list dict tuple true false string bf16 fp16 fp32 fp64 int8 int16 int32 int64 "
        "uint8 uint16 uint32 uint64 state main"
    ).split()
)


# What a classifier's outputs are called, as apps ask for them.
PREDICTED, PROBABILITIES = "classLabel", "classLabel_probs"


class Keys:
    """Hands out one identifier per ONNX name.

    Args:
        taken: identifiers that are for something else.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used: set[str] = set(taken)

    def keys(self, names: Iterable[str]) -> list[str]:
        return [self.key(name) for name in names]

    def key(self, name: str) -> str:
        """The identifier for `name`: the name itself if it is one that nothing else has."""
        base = re.sub(r"[^A-Za-z0-9_]", "_", name) or "value"
        base = base.replace(INNER, "_inner__")
        if base[0].isdigit() or base in _RESERVED:
            base = f"v_{base}"
        key, count = base, 1
        while key in self._used:
            key, count = f"{base}_{count}", count + 1
        self._used.add(key)
        return key

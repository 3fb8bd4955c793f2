"""MIL's forms of padding: a pair per axis, or a scheme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxport.converters.windows import Window


def interleave_pads(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """MIL's order: before and after of axis 0, then of axis 1 ..."""
    return [pad for pair in zip(before, after, strict=True) for pad in pair]


def window_pads(window: Window) -> dict[str, Any]:
    """Return the padding parameters of conv and of the pools."""
    if (
        (window.same or window.same_lower)
        and None in window.input
        and any(stride != 1 for stride in window.strides)
    ):
        return {"pad_type": "same" if window.same else "same_lower"}
    if not any(window.before) and not any(window.after):
        return {"pad_type": "valid"}
    return {"pad_type": "custom", "pad": interleave_pads(window.before, window.after)}

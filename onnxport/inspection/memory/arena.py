"""Offsets of buffers in one block: largest first, each into the smallest gap that takes it.

"Greedy by size" of Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (2020), which LiteRT
uses; buffers that live through the whole run are placed before the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxport.inspection.memory.buffers import Buffer

_ALIGNMENT = 64  # bytes; of LiteRT and ONNX Runtime on CPUs


def place(buffers: Sequence[Buffer], end: int) -> int:
    """Set the offset of each buffer and return the size of the block; `end` is the last node's position."""
    placed = np.zeros((4, len(buffers)), np.int64)  # first, last, offset, end
    size = 0
    order = sorted(buffers, key=lambda each: (each.first > 0 or each.last < end, -each.size, each.first))
    for number, each in enumerate(order):
        firsts, lasts, offsets, ends = placed[:, :number]
        beside = (firsts <= each.last) & (lasts >= each.first)
        each.offset = _gap(
            sorted(zip(offsets[beside].tolist(), ends[beside].tolist(), strict=True)), each.size
        )
        placed[:, number] = each.first, each.last, each.offset, each.offset + each.size
        size = max(size, each.offset + each.size)
    return size


def _gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return where the smallest gap begins that takes `size` bytes, else the end of what is taken."""
    start, best, least = 0, None, 0
    for offset, end in taken:
        if start + size <= offset and (best is None or offset - start < least):
            best, least = start, offset - start
        start = max(start, -(-end // _ALIGNMENT) * _ALIGNMENT)
    return start if best is None else best

"""x * Clip(x + 3, 0, 6) / 6 as HardSwish, whatever shares out its factors (ONNX HardSwish-14)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.validate.translation.forms import Core, Head
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.rounding_bounds import FLOAT_NOISE, Rounded


def as_hard_swish(graph: Graph, head: Head) -> Head:
    """Return u * clamp(p u + q, 0, h) with h / p = 6 and q / p = 3 as h * HardSwish(u) (ONNX HardSwish-14)."""
    if head.core.op != "Mul":
        return head
    first, second = head.core.operands
    if not isinstance(first, ir.Value) or not isinstance(second, ir.Value):
        return head
    for data, gate in ((first, second), (second, first)):
        found = graph.relative(gate, data)
        factor = None if found is None else _gate_factor(found)
        if factor is not None:
            core = Core(head.core.value, "HardSwish", {}, (data,))
            before = Head(core, rank=head.rank).stretched(Rounded.number(factor))
            return _behind(before, head)
    return head


def _gate_factor(gate: Head) -> float | None:
    """Return h of clamp(p u + q, 0, h); None for another gate."""
    if not all(np.size(each) == 1 for each in (gate.scale.values, gate.shift.values, gate.low, gate.high)):
        return None
    slope, shift, low, high = (
        float(np.asarray(each).reshape(-1)[0])
        for each in (gate.scale.values, gate.shift.values, gate.low, gate.high)
    )
    if slope <= 0 or not np.isfinite(high) or abs(low) > FLOAT_NOISE * high:
        return None
    is_gate = np.allclose((high / slope, shift / slope), (6.0, 3.0), rtol=1e-4)
    return high if is_gate else None


def _behind(before: Head, head: Head) -> Head:
    """Apply what follows the core of `head` to `before`."""
    return Head(
        before.core,
        before.scale.times(head.scale),
        before.shift.times(head.scale).plus(head.shift),
        head.low,
        head.high,
        head.grids,
        head.casts,
        head.rank,
    )

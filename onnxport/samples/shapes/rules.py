"""The shape rule of every operator that has one."""

from __future__ import annotations

from onnxport.samples.shapes import elementwise, features, layout, products, reductions, windows
from onnxport.samples.shapes.analysis import Rule

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **features.RULES,
    **layout.RULES,
    **products.RULES,
    **reductions.RULES,
    **windows.RULES,
}

"""Placement: which tensors of a graph become integers, and their groups.

plan.py       the data: units, their weights and biases, and what follows from them
operators.py  which operators compute in integers, and how: tables
analysis.py    from a settled graph to a plan
"""

from __future__ import annotations

from onnxport.quantize.placement.analysis import place
from onnxport.quantize.placement.plan import Bias, FixedGrid, Placement, Unit, Weight

__all__ = ["Bias", "FixedGrid", "Placement", "Unit", "Weight", "place"]

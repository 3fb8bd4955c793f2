"""Placement: which tensors of a graph become integers, and their groups."""

from __future__ import annotations

from onnxport.quantize.placement.analysis import EXCLUDED, place
from onnxport.quantize.placement.plan import Bias, FixedGrid, Placement, Unit, Weight

__all__ = ["EXCLUDED", "Bias", "FixedGrid", "Placement", "Unit", "Weight", "place"]

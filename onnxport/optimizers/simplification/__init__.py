"""Fewer nodes that compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnx_ir.passes import common

from onnxport.model import Model
from onnxport.optimizers.fold import fold_constants
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.prepare import Equivalence


@dataclass(frozen=True)
class Simplified:
    model: Model
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def simplified(
    model: Model, params: OptimizeParams, folder: Path, *, equivalence: Equivalence | None
) -> Simplified:
    """A copy of `model` with fewer nodes."""
    candidate = model.clone()
    fold_constants(candidate)
    common.RemoveUnusedNodesPass()(candidate.ir)
    return Simplified(candidate)

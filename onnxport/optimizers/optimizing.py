"""An ONNX model made current and small: sizes given, opset changed, simplified, pruned, float16; in this order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.model import Model
from onnxport.optimizers import shapes as shape_passes
from onnxport.optimizers.opset import brought_to
from onnxport.optimizers.params import OptimizeParams
from onnxport.optimizers.prepare import Equivalence

Feeds = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


@dataclass(frozen=True)
class Optimized:
    """The model, and what the report should say of its making.

    Attributes:
        facts: "passes": what changed in each, as a list of {"pass", "nodes", "parameters", "bytes", "skipped"}.
    """

    model: Model
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def optimized(
    model: Model,
    params: OptimizeParams,
    folder: Path,
    samples: Sequence[Feeds],
    *,
    equivalence: Equivalence | None,
    phase: Callable[[str], AbstractContextManager[None]],
) -> Optimized:
    """A changed copy of `model`; the weights are shared where they stay.

    Args:
        folder: for files on the way.
        samples: the user's inputs, on which values are measured for float16.
        equivalence: says of an intermediate model whether it computes something else; None where nobody wants to know.

    Raises:
        UsageError: sizes that do not fit the model.
        CannotConvertError: nodes that have no form at the opset asked for.
    """
    candidate = model.clone()
    notes: list[str] = []
    facts: dict[str, Any] = {}
    if params.shape:
        shape_passes.pin_inputs(candidate, params.shape)
    if params.opset is not None:
        with phase("opset"):
            brought = brought_to(candidate, params.opset)
        candidate, notes = brought.model, [*brought.notes]
    if params.simplify:
        from onnxport.optimizers.simplification import simplified

        with phase("simplify"):
            done = simplified(candidate, params, folder, equivalence=equivalence)
        candidate, notes, facts = done.model, [*notes, *done.notes], dict(done.facts)
    if params.fp16:
        from onnxport.optimizers.float16.conversion import to_float16

        with phase("float16"):
            halved = to_float16(candidate, folder, samples, io=params.io == "fp16")
        candidate, notes, facts = halved.model, [*notes, *halved.notes], {**facts, **halved.facts}
    return Optimized(candidate, tuple(notes), facts)

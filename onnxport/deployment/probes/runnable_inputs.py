"""One set of inputs that a model runs on: open dimensions get sizes that ONNX Runtime accepts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.deployment.probes.ort import REFUSALS
from onnxport.formats.input_shapes import GivenShape, apply_shapes, size_limits
from onnxport.formats.model import Model
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.domain import domains
from onnxport.samples.generator import KINDS, generate
from onnxport.samples.sizes import OpenSizes

_MOST_TRIES = 40


def runnable_inputs(
    path: Path, model: Model, shapes: Mapping[str, GivenShape]
) -> Mapping[str, np.ndarray[Any, np.dtype[Any]]]:
    """Return the first inputs that ONNX Runtime runs at the user's `shapes`, or the first that was tried."""
    inputs, known = model.inputs, domains(model)
    sizes = OpenSizes(inputs, apply_shapes(inputs, shapes), size_limits(inputs, shapes))
    proposed = [
        generate(
            {spec.name: (spec, chosen[spec.name]) for spec in inputs}, known, kind=KINDS[0], seed=0, index=0
        )
        for chosen in islice(sizes.proposals(1), _MOST_TRIES if sizes.is_open else 1)
    ]
    if len(proposed) == 1:
        return proposed[0]
    try:
        session = open_session(path, threads=1)
    except REFUSALS:
        return proposed[0]
    return next((feeds for feeds in proposed if _runs(session, feeds)), proposed[0])


def _runs(session: Any, feeds: Mapping[str, Any]) -> bool:
    try:
        session.run(None, dict(feeds))
    except REFUSALS:
        return False
    return True

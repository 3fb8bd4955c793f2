"""The pre-flight of a float16 conversion: the magnitude of every value on samples, measured with ONNX Runtime.

It runs in a subprocess that ends before the conversion starts, so that the two do not share memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime

from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.input_shapes import GivenShape, apply_shapes, size_limits
from onnxport.formats.model import Model
from onnxport.optimizers.float16.magnitudes import Measured
from onnxport.optimizers.float16.taps import tap
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.domain import domains, without_functions
from onnxport.samples.footprint import Estimate, Footprint
from onnxport.samples.generator import KINDS, generate
from onnxport.samples.input_domains import InputDomains
from onnxport.samples.sizes import OpenSizes

_MOST_TRIES = 40  # sizes of open dimensions
_PATIENCE = 20.0  # seconds of trying
_MOST_BYTES = 1_000_000_000  # for the values of one run at sizes that the user did not give


class Preflight:
    """The measuring object of the subprocess."""

    def measure(self, path: Path, shapes: Mapping[str, GivenShape], given: Sequence[Feeds] = ()) -> Measured:
        """Run the prepared model at `path` on the `given` inputs, or on generated ones.

        Args:
            shapes: the user's sizes.
        """
        model = Model.received(path)
        try:
            session, names = _session(model, path.with_name("preflight.onnx"))
        except Exception as error:  # whatever ONNX Runtime raises: the conversion can do without
            return Measured(failure=_first_line(error))
        peaks: dict[str, float] = {}
        sets, failure = 0, "no sizes were found that the model accepts"
        for feeds in given or _generate(model, shapes, session):
            try:
                found = session.run(None, dict(feeds))
            except Exception as error:
                failure = _first_line(error)
                continue
            sets += 1
            for name, value in zip(names, found, strict=True):
                peaks[name] = max(peaks.get(name, 0.0), float(np.nan_to_num(value, nan=np.inf)))
        return Measured(peaks, sets, "" if sets else failure)


def _session(model: Model, path: Path) -> tuple[onnxruntime.InferenceSession, list[str]]:
    """Open the model with the peaks of its float values as its only outputs; return the values' names, too."""
    graph = model.graph
    peaks = tap(graph, model.opset)
    graph.outputs.clear()
    graph.outputs.extend(peak for _, peak in peaks)
    weights = _mapped_weights(model, path.parent)
    ir.save(model.ir, path)
    session = open_session(path, level="disable", prepacking=False, initializers=weights)
    return session, [name for name, _ in peaks]


def _mapped_weights(model: Model, folder: Path) -> dict[str, onnxruntime.OrtValue]:
    """Map the weights in files of other folders than `folder`, which ONNX Runtime does not open."""
    return {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(value.const_value.numpy())
        for name, value in model.graph.initializers.items()
        if isinstance(value.const_value, ir.ExternalTensor) and Path(value.const_value.path).parent != folder
    }


def _generate(model: Model, shapes: Mapping[str, GivenShape], session: Any) -> Iterator[Feeds]:
    """Generate one input set of each kind at the first sizes that the model accepts; no adversarial ones, which
    overflow."""
    inputs = [spec for spec in model.inputs if spec.name in {each.name for each in session.get_inputs()}]
    graph = without_functions(model)
    domains_at = InputDomains(graph, domains(graph))
    sizes = OpenSizes(inputs, apply_shapes(inputs, {}), size_limits(inputs, _present(shapes, inputs)), graph)
    footprint, end = Footprint(model, inputs), time.monotonic() + _PATIENCE
    fitting = (shape for shape in sizes.proposals(1) if _fits(footprint.at(shape), sizes))
    proposals = takewhile(lambda _: time.monotonic() < end, islice(fitting, _MOST_TRIES))
    chosen = None
    for number, kind in enumerate(KINDS):
        for shape in [chosen] if chosen else proposals:
            specs = {spec.name: (spec, shape[spec.name]) for spec in inputs}
            feeds = generate(specs, domains_at.at(shape, 0, number), kind=kind, seed=0, index=number)
            if chosen is None and not _runs(session, feeds):
                continue
            chosen = shape
            yield feeds
            break


def _fits(estimate: Estimate, sizes: OpenSizes) -> bool:
    """Return whether a run at these sizes is within bounds; always for a model without open sizes."""
    return not sizes.untold or estimate.graph <= _MOST_BYTES


def _runs(session: Any, feeds: Feeds) -> bool:
    try:
        session.run(None, dict(feeds))
    except Exception:
        return False
    return True


def _present(shapes: Mapping[str, GivenShape], inputs: Sequence[TensorSpec]) -> dict[str, GivenShape]:
    names = {spec.name for spec in inputs}
    return {name: shape for name, shape in shapes.items() if name in names}


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__

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
from onnxport.formats.input_shapes import GivenShape, apply_shapes, size_limits
from onnxport.formats.model import Model
from onnxport.optimizers.float16.magnitudes import Measured
from onnxport.optimizers.float16.taps import tap
from onnxport.runtimes.ort.inference_session import open_session
from onnxport.samples.domain import domains
from onnxport.samples.footprint import Footprint
from onnxport.samples.generator import KINDS, generate
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
    # ONNX Runtime does not open weights in files of other folders.
    weights = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())
        for name, value in graph.initializers.items()
        if isinstance(tensor := value.const_value, ir.ExternalTensor)
        and Path(tensor.path).parent != path.parent
    }
    ir.save(model.ir, path)
    session = open_session(path, level="disable", prepacking=False, initializers=weights)
    return session, [name for name, _ in peaks]


def _generate(model: Model, shapes: Mapping[str, GivenShape], session: Any) -> Iterator[Feeds]:
    """Generate an input set of each kind, except those that overflow, at the first sizes that the model accepts."""
    inputs = [spec for spec in model.inputs if spec.name in {each.name for each in session.get_inputs()}]
    names = {spec.name for spec in inputs}
    given = {name: shape for name, shape in shapes.items() if name in names}
    sizes = OpenSizes(inputs, apply_shapes(inputs, {}), size_limits(inputs, given))
    known, footprint, end = domains(model), Footprint(model, inputs), time.monotonic() + _PATIENCE

    def fits(shape: Any) -> bool:
        estimate = footprint.at(shape)
        return not sizes.untold or (estimate.graph <= _MOST_BYTES and not estimate.contradiction)

    fitting = filter(fits, sizes.proposals(1))
    proposals = takewhile(lambda _: time.monotonic() < end, islice(fitting, _MOST_TRIES))
    chosen = None
    for number, kind in enumerate(KINDS):
        for shape in [chosen] if chosen else proposals:
            specs = {spec.name: (spec, shape[spec.name]) for spec in inputs}
            feeds = generate(specs, known, kind=kind, seed=0, index=number)
            if chosen is None:
                try:
                    session.run(None, dict(feeds))
                except Exception:
                    continue
            chosen = shape
            yield feeds
            break


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__

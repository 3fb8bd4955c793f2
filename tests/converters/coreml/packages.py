"""Models converted to packages in this process, and read again by coremltools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxport.converters.coreml.worker import Worker
from onnxport.converters.params import CoremlParams
from onnxport.converters.result import Compiled
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
from onnxport.optimizers.float16.islands import islands
from onnxport.optimizers.float16.preflight import Preflight
from onnxport.runtimes.mlprogram import MilRuntime
from tests.conformance.harness import MANIFEST, Array


def convert(
    model: Model, output: Path, *, samples: Sequence[Mapping[str, Array]] = (), **params: Any
) -> Compiled:
    """Writes `model` to the package `output` as the command line would, with nobody to judge it and all in one process.

    A float16 conversion has its pre-flight where there are samples for it.
    """
    worker = Worker()
    asked = CoremlParams(**params)
    prepared = prepare(model, shapes=asked.shape, native=worker.native_ops).model
    handed_over = output.with_suffix(".onnx")
    prepared.save(handed_over)
    found: tuple[str, ...] = ()
    if samples:
        measured = Preflight().measure(handed_over, asked.shape, samples)
        found = islands(prepared.graph, measured.peaks, mixed=asked.precision == "mixed")
    worker.lower(handed_over, asked, MANIFEST, found)
    return worker.write(output, asked)


def spec_of(package: Path) -> Any:
    """The package's model as coremltools reads it."""
    import coremltools

    return coremltools.models.MLModel(str(package), skip_model_load=True).get_spec()


def evaluate(package: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    with MilRuntime(package) as runtime:
        return runtime.run(dict(feeds))

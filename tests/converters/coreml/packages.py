"""Models converted to packages in this process, and read again by coremltools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxport.converters.coreml.compiled import Compiled
from onnxport.converters.coreml.worker import Worker
from onnxport.converters.params import CoremlParams
from onnxport.model import Model
from onnxport.optimizers.prepare import prepare
from onnxport.validate.runtimes.mil import MilRuntime
from tests.conformance.harness import MANIFEST, Array


def convert(model: Model, output: Path, **params: Any) -> Compiled:
    """Writes `model` to the package `output` as the command line would, with nobody to judge it."""
    worker = Worker()
    asked = CoremlParams(**params)
    prepared = prepare(model, shapes=asked.shape, native=worker.native_ops).model
    handed_over = output.with_suffix(".onnx")
    prepared.save(handed_over)
    return worker.compile(handed_over, output, asked, MANIFEST)


def spec_of(package: Path) -> Any:
    """The package's model as coremltools reads it."""
    import coremltools

    return coremltools.models.MLModel(str(package), skip_model_load=True).get_spec()


def evaluate(package: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    with MilRuntime(package) as runtime:
        return runtime.run(dict(feeds))

"""The work itself, imported when a step starts. A worker gets a model and its params and says what it made of them.

It is pure: the same model and params give the same bytes. It never changes the model that it is handed, which others
read too, and it proves nothing: onnxport's judge holds what comes out against the answers of the original.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx_ir as ir

from acme_onnxport.stages import OrtPortableParams, ZeroWeightsParams
from onnxport.converters.ort import convert
from onnxport.converters.params import OrtParams
from onnxport.formats.model import Model
from onnxport.pipelines.stages import Product, Work, Worker


@contextmanager
def zero_weights() -> Iterator[Worker]:
    """Weights so small that they cost bytes in every compressed app and change no answer become 0."""

    def make(model: Model, params: ZeroWeightsParams, work: Work) -> Product:
        changed = model.clone()
        zeroed = 0
        for value in changed.graph.initializers.values():
            if value.const_value is None or value.dtype != ir.DataType.FLOAT:
                continue
            weights = value.const_value.numpy()
            small = (np.abs(weights) < params.below) & (weights != 0)
            if small.any():
                zeroed += int(small.sum())
                value.const_value = ir.tensor(np.where(small, np.float32(0), weights), name=value.name)
        with work.phases.phase("write"):
            artifact = changed.noted(work.manifest, model).save(work.output, model)
        return Product(artifact, facts={"zeroed": zeroed})

    yield make


@contextmanager
def ort_portable() -> Iterator[Worker]:
    """The .ort file with the operators that the model itself has, or nearly: older runtimes know these too."""

    def make(model: Model, params: OrtPortableParams, work: Work) -> Product:
        with work.phases.phase("convert"):
            return Product(*convert(model, work.output, OrtParams(level="basic"), work.manifest))

    yield make

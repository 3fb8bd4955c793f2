"""What a model is run on while it is profiled: the first set of the user's, or one that is generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.artifact import Artifact, Dim, TensorSpec
from onnxport.errors import UsageError
from onnxport.model import Model
from onnxport.profiling.params import ProfileParams
from onnxport.samples.domain import declared_domains, domains, without_functions
from onnxport.samples.generator import generate
from onnxport.samples.preprocessing import preprocessing
from onnxport.samples.readers import find_samples
from onnxport.samples.sizes import OpenSizes
from onnxport.samples.states import find_states
from onnxport.shapes import apply_shapes

Feeds = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


def feeds_of(artifact: Artifact, specs: Sequence[TensorSpec], params: ProfileParams) -> tuple[Feeds, str]:
    """Inputs of the model, and whose they are: "generated, seed 0", or a file's name.

    Raises:
        UsageError: sizes that do not fit, or one that nobody gave; the option that gives it is in the message.
        InputError: samples that cannot be read.
    """
    shapes = apply_shapes(specs, params.shape)
    model = without_functions(Model.load(artifact.path)) if artifact.format == "onnx" else None
    if params.inputs is not None:
        wanted = [TensorSpec(spec.name, spec.dtype, shapes[spec.name]) for spec in specs]
        states = find_states(model, specs, model.outputs) if model is not None else {}
        sample = find_samples(
            params.inputs,
            wanted,
            1,
            settings=preprocessing(params.preprocess, params.inputs),
            optional=frozenset(states),
        )[0].load()
        return sample.feeds, sample.label
    sizes = _sizes(specs, shapes)
    given = {spec.name: (spec, sizes[spec.name]) for spec in specs}
    known = domains(model) if model is not None else declared_domains(specs)
    return generate(given, known, kind="image", seed=params.seed, index=0), f"generated, seed {params.seed}"


def _sizes(specs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Dim]]) -> dict[str, tuple[int, ...]]:
    """Concrete shapes: an open batch is 1."""
    batches = OpenSizes(specs, shapes).batch_axes
    settled = {
        name: tuple(1 if batches.get(name) == axis else dim for axis, dim in enumerate(dims))
        for name, dims in shapes.items()
    }
    unsettled = {
        name: dims for name, dims in settled.items() if not all(isinstance(dim, int) for dim in dims)
    }
    if unsettled:
        given = " ".join(
            f"--shape {name}={','.join(str(dim) if isinstance(dim, int) else '?' for dim in dims)}"
            for name, dims in unsettled.items()
        )
        listed = ", ".join(str(TensorSpec(spec.name, spec.dtype, tuple(shapes[spec.name]))) for spec in specs)
        raise UsageError(
            f"nobody says how large {'an input is' if len(unsettled) == 1 else 'inputs are'} to be",
            why=f"the model takes {listed}",
            fix=f"put sizes in place of ?: {given}",
        )
    return {name: tuple(dim for dim in dims if isinstance(dim, int)) for name, dims in settled.items()}

"""Generated inputs are ones that a model runs on: ONNX's node tests, whose operators demand much of their inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.core.errors import OnnxportError
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.samples.domain import domains, without_functions
from onnxport.samples.generator import KINDS, generate
from onnxport.samples.input_domains import InputDomains
from onnxport.samples.sizes import OpenSizes
from tests.conformance.harness import cases
from tests.conformance.onnxruntime import RIGHT

# Cases on whose generated inputs ONNX Runtime does not run.
_EXPANDED = "its sizes go through the arithmetic of the expanded function"
_NO_ARRAY = "ONNX Runtime's Python takes no arrays of this type"
REFUSED = {
    "test_affine_grid_2d_align_corners_expanded": _EXPANDED,
    "test_affine_grid_2d_expanded": _EXPANDED,
    "test_affine_grid_3d_align_corners_expanded": _EXPANDED,
    "test_affine_grid_3d_expanded": _EXPANDED,
    "test_cast_e8m0_FLOAT8E8M0_to_FLOAT": _NO_ARRAY,
    "test_cast_e8m0_FLOAT8E8M0_to_FLOAT16": _NO_ARRAY,
}
SETS = 3
PARTS = 8


def runnable() -> list[str]:
    """The node tests that ONNX Runtime passes, without those of sequences and optional values."""
    return [name for name in RIGHT.read_text(encoding="utf-8").split() if name.startswith("node/")]


def refusal(path: Path) -> str | None:
    """What ONNX Runtime says of three generated sets; None where it runs, "" where there are no tensors to feed."""
    try:
        model = without_functions(Model.load(path))
        runtime = OrtRuntime(path)
        if any(spec.dtype.startswith(("seq", "optional")) for spec in (*runtime.inputs, *runtime.outputs)):
            return ""
        sizes = OpenSizes(model.inputs, {spec.name: spec.shape for spec in model.inputs}, None, model)
        shapes = next(sizes.proposals(1))
        at = InputDomains(model, domains(model))
        for number in range(SETS):
            specs = {spec.name: (spec, shapes[spec.name]) for spec in model.inputs}
            feeds = generate(specs, at.at(shapes, 0, number), kind=KINDS[number], seed=0, index=number)
            runtime.run(feeds)
    except RunError as error:
        return error.why
    except OnnxportError:
        return ""
    return None


@pytest.mark.parametrize("part", range(PARTS))
def test_onnx_runtime_runs_on_what_is_generated(part: int) -> None:
    folders, names = cases(), runnable()[part::PARTS]
    found = {name: refusal(folders[name] / "model.onnx") for name in names}
    refused = {name.removeprefix("node/") for name, why in found.items() if why}
    assert refused == REFUSED.keys() & {name.removeprefix("node/") for name in names}
    assert sum(why is None for why in found.values()) > 0.9 * len(names)

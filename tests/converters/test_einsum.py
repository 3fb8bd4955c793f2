"""Einsum to both targets against NumPy: forms beyond products of two whole operands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from onnxport.formats.model import Model
from tests.conformance.tflite import Array, Conformance
from tests.converters.coreml import packages
from tests.converters.tflite.models import model_of

EQUATIONS = {
    "three operands": ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
    "a letter in all three": ("ai,aj,ak->ijk", ((2, 3), (2, 4), (2, 2))),
    "a letter summed late": ("ij,jk,li->k", ((2, 3), (3, 4), (2, 2))),
    "an axis of size 1 repeats": ("bij,bjk->bik", ((1, 2, 3), (4, 3, 2))),
    "an inner axis of size 1 repeats": ("ij,jk->ik", ((2, 1), (3, 4))),
}


def case(name: str) -> tuple[Model, dict[str, Array], Array]:
    equation, shapes = EQUATIONS[name]
    random = np.random.default_rng(0)
    feeds = {f"x{i}": random.normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes)}
    model = model_of([helper.make_node("Einsum", list(feeds), ["y"], equation=equation)], feeds)
    return model, feeds, np.einsum(equation, *feeds.values())


@pytest.mark.parametrize("name", EQUATIONS)
def test_to_tflite(name: str, conformance: Conformance) -> None:
    model, feeds, expected = case(name)
    (answers,) = conformance.convert_and_run(model, [feeds])
    np.testing.assert_allclose(answers["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", EQUATIONS)
def test_to_coreml(name: str, tmp_path: Path) -> None:
    model, feeds, expected = case(name)
    package = tmp_path / "einsum.mlpackage"
    packages.convert(model, package)
    np.testing.assert_allclose(packages.evaluate(package, feeds)["y"], expected, rtol=1e-5, atol=1e-6)

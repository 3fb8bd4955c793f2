"""A quantized `.tflite` file is proven to be its float ONNX source, or what is wrong with it is named."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxport
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError
from onnxport.validate.translation.proof import Proof
from onnxport.validate.translation.tflite.artefact import prove_tflite
from tests.validate.translation import branches
from tests.validate.translation.tflite_faults import FAULTS, NoPlace, put

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
SOURCE = DIGITS / "digits.onnx"
Array = np.ndarray[Any, np.dtype[Any]]

CALIBRATED = ("int8", "int16x8")


def images(count: int = 2) -> list[dict[str, Array]]:
    with np.load(DIGITS / "test.npz") as stored:
        return [{"image": stored["image"][place : place + 1]} for place in range(count)]


class Made(dict[str, Path]):
    """A network with a batch of one, made when a test asks for its precision."""

    def __init__(self, folder: Path, source: Path, inputs: list[dict[str, Array]]) -> None:
        super().__init__()
        self.folder, self.source, self.inputs, self.samples = folder, source, inputs[:2], folder / "samples"
        self.samples.mkdir()
        for number, each in enumerate(inputs):
            np.savez(self.samples / f"{number:02}.npz", **each)

    def __missing__(self, precision: str) -> Path:
        sizes = {name: array.shape for name, array in self.inputs[0].items()}
        options: dict[str, Any] = {"precision": precision, "shape": sizes}
        options |= {"calib": self.samples} if precision in CALIBRATED else {}
        self[precision] = self.folder / f"{precision}.tflite"
        onnxport.convert_model(self.source, "tflite", self[precision], validate=False, **options)
        return self[precision]

    def proof(self, path: Path) -> Proof:
        return prove_tflite(Model.load(self.source), path, self.inputs)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("tflite"), SOURCE, images(20))


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("branches")
    return Made(folder, branches.write(folder / "branches.onnx"), branches.samples(20))


def proof(path: Path) -> Proof:
    return prove_tflite(Model.load(SOURCE), path, images())


def test_litert_prints_nothing_into_the_terminal(made: Made, capfd: pytest.CaptureFixture[str]) -> None:
    path = made["int8"]
    capfd.readouterr()
    assert not proof(path).findings
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("precision", ["int8", "int16x8", "int8-dynamic", "int8-weights", "int4-weights"])
def test_a_right_file_is_proven(precision: str, made: Made) -> None:
    found = proof(made[precision])
    assert list(found.findings) == []
    nodes = onnx.load(SOURCE).graph.node
    assert found.weights == sum(node.op_type in ("Conv", "Gemm", "MatMul") for node in nodes)
    assert (found.arithmetic.compared > 0) == (precision in CALIBRATED)


def test_floats_that_kernels_round_at_run_time_are_rounded_alike(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LiteRT rounds each row that it multiplies with stored integers: exact arithmetic has to do the same."""
    from onnxport.validate.translation.tflite import artefact

    right = proof(made["int8-dynamic"]).arithmetic.furthest
    monkeypatch.setattr(artefact, "with_run_time_rounding", lambda model: model)
    found = proof(made["int8-dynamic"])
    assert found.arithmetic.furthest > 10 * right
    assert {each.kind for each in found.findings} <= {"doubt"}


@pytest.mark.parametrize("precision", ["int8", "int16x8", "int8-weights"])
def test_a_right_file_with_branches_is_proven(precision: str, branched: Made) -> None:
    assert list(branched.proof(branched[precision]).findings) == []


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        (name, precision)
        for name in FAULTS
        for precision in ("int8", "int16x8", "int8-weights")
        if (name, precision) != ("activation_dropped", "int8")  # there the grid begins at 0
    ],
)
def test_a_fault_is_found(name: str, precision: str, made: Made, branched: Made, tmp_path: Path) -> None:
    place, broken = made, tmp_path / "broken.tflite"
    try:
        put(FAULTS[name], made[precision], broken)
    except NoPlace:
        place = branched
        put(FAULTS[name], branched[precision], broken)
    with contextlib.suppress(RunError):  # LiteRT refuses some
        assert place.proof(broken).findings


def test_the_command_proves_a_file_and_names_a_changed_weight(made: Made, tmp_path: Path) -> None:
    report = onnxport.validate_model(SOURCE, made["int8"], inputs=made.samples)
    assert [each.verdict for each in report.judgements if each.question == "translation"] == ["proven"]
    broken = put(FAULTS["weight_sign"], made["int8"], tmp_path / "broken.tflite")
    report = onnxport.validate_model(SOURCE, broken, inputs=made.samples)
    assert report.verdict == "not equivalent"
    assert "weights are more than half a step from the source's" in report.reason

"""Files of float16 and bfloat16 are proven to be their float32 source; a constant that is no rounding is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.validate.translation.proof import Proof, prove
from onnxport.validate.translation.tflite.artefact import prove_tflite

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
SOURCE = DIGITS / "digits.onnx"
PRECISIONS = {"fp16": "float16", "bf16": "bfloat16"}


def images() -> list[dict[str, np.ndarray]]:
    with np.load(DIGITS / "test.npz") as stored:
        return [{"image": stored["image"][place : place + 1]} for place in range(2)]


def made(precision: str, folder: Path) -> Path:
    output = folder / f"{precision}.onnx"
    onnxport.quantize_model(SOURCE, precision, output, validate=False)
    return output


def proof(path: Path, precision: str) -> Proof:
    return prove(Model.load(SOURCE), Model.load(path), images(), allowed={PRECISIONS[precision]})


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_right_file_is_proven(precision: str, tmp_path: Path) -> None:
    found = proof(made(precision, tmp_path), precision)
    assert list(found.findings) == []
    assert found.weights == 3


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_weight_off_by_two_of_its_last_bits_is_found(precision: str, tmp_path: Path) -> None:
    path = made(precision, tmp_path)
    model = onnx.load(path)
    weight = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    values = numpy_helper.to_array(weight).copy()
    values.reshape(-1).view(np.uint16)[11] += 2
    weight.raw_data = values.tobytes()
    onnx.save(model, path)
    assert "weights are more than half a step from the source's" in str(proof(path, precision))


def test_a_tflite_file_with_float16_weights_is_proven(tmp_path: Path) -> None:
    output = tmp_path / "half.tflite"
    onnxport.convert_model(
        SOURCE, "tflite", output, validate=False, precision="fp16", shape={"image": (1, 1, 8, 8)}
    )
    found = prove_tflite(Model.load(SOURCE), output, images(), allowed={"float16"})
    assert list(found.findings) == []
    assert found.weights == 3

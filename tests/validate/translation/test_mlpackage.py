"""A quantized `.mlpackage` is proven to be its float ONNX source, or what is wrong with it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.validate.translation.proof import Proof

pytest.importorskip("coremltools")
from onnxport.validate.translation.mlpackage import operators
from onnxport.validate.translation.mlpackage.artefact import prove_mlpackage

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
SOURCE = DIGITS / "digits.onnx"
Array = np.ndarray[Any, np.dtype[Any]]


def images(count: int = 2) -> list[dict[str, Array]]:
    with np.load(DIGITS / "test.npz") as stored:
        return [{"image": stored["image"][place : place + 1]} for place in range(count)]


def quantized(precision: str, folder: Path) -> Path:
    options: dict[str, Any] = {}
    if precision in ("int8", "int16x8"):
        samples = folder / "samples"
        samples.mkdir()
        for number, each in enumerate(images(20)):
            np.savez(samples / f"{number:02}.npz", **each)
        options["calib"] = samples
    output = folder / f"{precision}.onnx"
    onnxport.quantize_model(SOURCE, precision, output, validate=False, **options)
    return output


def packaged(path: Path) -> Path:
    output = path.with_suffix(".mlpackage")
    options = {"shape": {"image": (1, 1, 8, 8)}, "minimum_target": "iOS18"}  # before it, 4 bits become floats
    onnxport.convert_model(path, "coreml", output, validate=False, **options)
    return output


def proof(path: Path) -> Proof:
    return prove_mlpackage(Model.load(SOURCE), path, images())


@pytest.mark.parametrize("precision", ["int8", "int8-weights", "int4-weights"])
def test_a_right_package_is_proven(precision: str, tmp_path: Path) -> None:
    found = proof(packaged(quantized(precision, tmp_path)))
    assert list(found.findings) == []
    assert found.weights == 3
    assert (found.arithmetic.compared > 0) == (precision == "int8")


def _flip(codes: Array) -> None:
    codes.reshape(-1)[7] ^= -128  # the sign bit


def _swap(codes: Array) -> None:
    codes[[0, 1]] = codes[[1, 0]]


@pytest.mark.parametrize("change", [_flip, _swap])
def test_changed_weights_are_found(change: Any, tmp_path: Path) -> None:
    path = quantized("int8", tmp_path)
    model = onnx.load(path)
    weight = max(
        (each for each in model.graph.initializer if each.data_type == onnx.TensorProto.INT8),
        key=lambda each: len(each.raw_data),
    )
    codes = numpy_helper.to_array(weight).copy()
    change(codes)
    weight.CopyFrom(numpy_helper.from_array(codes, weight.name))
    onnx.save(model, path)
    assert "weights are more than half a step from the source's" in str(proof(packaged(path)))


def test_a_lost_operator_is_found(tmp_path: Path) -> None:
    path = quantized("int8-weights", tmp_path)
    model = onnx.load(path)
    relu = next(node for node in model.graph.node if node.op_type == "Relu")
    relu.op_type = "Identity"
    onnx.save(model, path)
    assert "nothing cuts it off at its lower end" in str(proof(packaged(path)))


def test_an_unknown_operator_is_named_and_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: lift for name, lift in operators.OPERATORS.items() if name != "max_pool"}
    monkeypatch.setattr(operators, "OPERATORS", known)
    found = proof(packaged(quantized("int8-weights", tmp_path)))
    assert "max_pool is not known here" in [each.text for each in found.findings]
    assert not found.faults

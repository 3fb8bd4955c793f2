"""Files that ONNX Runtime's own quantizer made of a real model are proven: the check knows more than our habits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.validate.translation.proof import Proof, prove

quantization = pytest.importorskip("onnxruntime.quantization")

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
SOURCE = DIGITS / "digits.onnx"
Array = np.ndarray[Any, np.dtype[Any]]

_STATIC: dict[str, dict[str, Any]] = {
    "default": {},
    "per channel": {"per_channel": True},
    "reduced range": {"per_channel": True, "reduce_range": True},
    "unsigned weights": {"weight_type": quantization.QuantType.QUInt8},
    "symmetric": {
        "activation_type": quantization.QuantType.QInt8,
        "extra_options": {"ActivationSymmetric": True},
    },
    "integer operators": {"quant_format": quantization.QuantFormat.QOperator},
    "integer operators per channel": {
        "quant_format": quantization.QuantFormat.QOperator,
        "per_channel": True,
    },
    "percentile": {"calibrate_method": quantization.CalibrationMethod.Percentile},
}


def _images(count: int) -> list[dict[str, Array]]:
    with np.load(DIGITS / "test.npz") as stored:
        return [{"image": each} for each in np.split(stored["image"][: 20 * count], count)]


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self._feeds: Iterator[dict[str, Array]] = iter(_images(4))

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def _static(path: Path, **options: Any) -> Path:
    types = {
        "activation_type": quantization.QuantType.QUInt8,
        "weight_type": quantization.QuantType.QInt8,
    }
    quantization.quantize_static(str(SOURCE), str(path), _Reader(), **(types | options))
    return path


def _proof(path: Path) -> Proof:
    return prove(Model.load(SOURCE), Model.load(path), _images(2))


@pytest.mark.parametrize("name", _STATIC)
def test_a_static_file_is_proven(name: str, tmp_path: Path) -> None:
    found = _proof(_static(tmp_path / "q.onnx", **_STATIC[name]))
    assert list(found.findings) == []
    products = sum(node.op_type in ("Conv", "Gemm", "MatMul") for node in onnx.load(SOURCE).graph.node)
    assert found.weights == products
    assert found.arithmetic.compared > 0


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_dynamic_file_is_proven(signed: bool, per_channel: bool, tmp_path: Path) -> None:
    dtype = quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8
    path = tmp_path / "q.onnx"
    quantization.quantize_dynamic(str(SOURCE), str(path), weight_type=dtype, per_channel=per_channel)
    assert list(_proof(path).findings) == []


def test_one_changed_weight_is_found_by_the_command(tmp_path: Path) -> None:
    path = _static(tmp_path / "q.onnx", per_channel=True)
    right = onnxport.validate_model(SOURCE, path)
    assert [each.verdict for each in right.judgements if each.question == "translation"] == ["proven"]
    model = onnx.load(path)
    weight = max(
        (each for each in model.graph.initializer if each.data_type == onnx.TensorProto.INT8),
        key=lambda each: len(each.raw_data),
    )
    codes = numpy_helper.to_array(weight).copy()
    codes.reshape(-1)[7] ^= -128  # the sign bit
    weight.CopyFrom(numpy_helper.from_array(codes, weight.name))
    onnx.save(model, path)
    report = onnxport.validate_model(SOURCE, path)
    assert report.verdict == "not equivalent"
    assert "1 of" in report.reason
    assert "weights are more than half a step from the source's" in report.reason

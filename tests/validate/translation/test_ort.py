"""`.ort` files are compared with their float source node for node, whatever ONNX Runtime fused in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxport
from onnxport.formats import ort_file
from onnxport.validate.report import Judgement

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits"
SOURCE = DIGITS / "digits.onnx"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    with np.load(DIGITS / "test.npz") as stored:
        for number, image in enumerate(np.split(stored["image"][:320], 16)):
            np.savez(folder / f"{number:02}.npz", image=image)
    return folder


def made(precision: str, samples: Path, folder: Path) -> Path:
    middle, output = folder / "middle.onnx", folder / "made.ort"
    if precision == "fp16":
        onnxport.convert_model(SOURCE, "ort", output, validate=False, precision=precision)
        return output
    calib = {"calib": samples} if precision == "int8" else {}
    onnxport.quantize_model(SOURCE, precision, middle, validate=False, latency=False, **calib)
    onnxport.convert_model(middle, "ort", output, validate=False)
    return output


def translation(path: Path, samples: Path) -> Judgement:
    report = onnxport.validate_model(SOURCE, path, inputs=samples)
    return next(each for each in report.judgements if each.question == "translation")


@pytest.mark.parametrize("precision", ["int8", "dynamic", "int8-weights", "fp16"])
def test_a_right_file_is_proven_and_a_weight_off_is_a_fault(
    precision: str, samples: Path, tmp_path: Path
) -> None:
    path = made(precision, samples, tmp_path)
    found = translation(path, samples)
    assert found.verdict == "proven", found.reason
    session = ort_file.read(path.read_bytes())
    tensors = session["model"]["graph"]["initializers"]
    weight = max(tensors, key=lambda each: len(each.get("raw_data", b"")))
    wide = {1: np.float32, 10: np.float16, 2: np.uint8, 3: np.int8}[weight["data_type"]]
    values = np.frombuffer(bytes(weight["raw_data"]), wide).copy()
    place = int(np.argmax(values))
    values[place] = values[place] // 2 if values.dtype.kind in "iu" else values[place] / 2
    weight["raw_data"] = values.tobytes()
    path.write_bytes(ort_file.write(session))
    wrong = translation(path, samples)
    assert wrong.verdict == "not equivalent", wrong.reason
    assert "weight" in wrong.reason

"""`.ort` files are compared with their float source node for node, whatever ONNX Runtime fused in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.formats import ort_file
from onnxport.formats.model import Model
from onnxport.validate.report import Judgement
from onnxport.validate.translation.arithmetic import ANSWER, OrtPieces

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


def test_pieces_may_have_nodes_of_one_name() -> None:
    """ONNX Runtime's optimizer names what it adds Transpose_token_1, and an .ort file has such nodes already."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="Transpose_token_1"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="Transpose_token_1"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    stored = [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.int8(0), "z")]
    graph = helper.make_graph(nodes, "pieces", ends[:1], ends[1:], stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    given = {"x": np.array([1, 2, 3, 4], np.float32), "q": np.array([5, 6, 7, 8], np.int8)}
    with OrtPieces(Model(ir.from_proto(proto)), {"q": given["q"]}, is_exact=False) as pieces:
        answers = pieces.run(given)
    assert answers["q" + ANSWER].tolist() == [2, 4, 6, 8]
    assert answers["y"].tolist() == [2.5, 3, 3.5, 4]

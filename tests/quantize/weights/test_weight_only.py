"""`--int8-weights`, `--int4-weights`: weights in fewer bits, whichever operator reads them, compute nearly the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.core.errors import CannotConvertError, UsageError

RANDOM = np.random.default_rng(7)
Arrays = dict[str, np.ndarray[Any, Any]]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


class Case:
    """One operator that reads weights.

    Attributes:
        x: the shape of its input, or ids below `ids`.
    """

    def __init__(
        self,
        nodes: list[onnx.NodeProto],
        weights: Arrays,
        x: tuple[int, ...],
        *,
        ids: int = 0,
        results: tuple[str, ...] = ("y",),
    ) -> None:
        self.nodes, self.weights, self.results = nodes, weights, results
        self.feed = RANDOM.integers(0, ids, x) if ids else normal(*x)

    def save(self, path: Path, opset: int = 17) -> Path:
        kind = TensorProto.INT64 if self.feed.dtype == np.int64 else TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "case",
            [helper.make_tensor_value_info("x", kind, self.feed.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.results],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        inferred = onnx.shape_inference.infer_shapes(
            helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
        )
        onnx.save(inferred, path)
        return path


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(
        op, inputs.split(), outputs.split(), name=f"{op}_to_{outputs.split()[0]}", **attributes
    )


CASES = {
    "MatMul": Case([node("MatMul", "x w")], {"w": normal(96, 40)}, (2, 5, 96)),
    "MatMul, weight first": Case([node("MatMul", "w x")], {"w": normal(40, 96)}, (96, 5)),
    "MatMul, a batch of weights": Case([node("MatMul", "x w")], {"w": normal(3, 64, 24)}, (3, 5, 64)),
    "MatMul, transposed weight": Case(
        [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t")], {"w": normal(40, 96)}, (5, 96)
    ),
    "MatMul, odd length": Case([node("MatMul", "x w")], {"w": normal(83, 24)}, (5, 83)),
    "Gemm": Case([node("Gemm", "x w b")], {"w": normal(96, 40), "b": normal(40)}, (5, 96)),
    "Gemm, transB": Case([node("Gemm", "x w b", transB=1)], {"w": normal(40, 96), "b": normal(40)}, (5, 96)),
    "Gemm, scaled": Case(
        [node("Gemm", "x w b", alpha=0.5, beta=2.0, transA=1)], {"w": normal(96, 40), "b": normal(40)}, (96, 5)
    ),
    "Conv": Case([node("Conv", "x w b")], {"w": normal(24, 40, 3, 3), "b": normal(24)}, (1, 40, 8, 8)),
    "Conv, depthwise": Case([node("Conv", "x w", group=64)], {"w": normal(64, 1, 3, 3)}, (1, 64, 8, 8)),
    "Conv, pointwise": Case([node("Conv", "x w")], {"w": normal(24, 96, 1, 1)}, (1, 96, 8, 8)),
    "Conv, one axis": Case([node("Conv", "x w")], {"w": normal(24, 40, 3)}, (1, 40, 8)),
    "ConvTranspose": Case([node("ConvTranspose", "x w")], {"w": normal(40, 24, 2, 2)}, (1, 40, 5, 5)),
    "LSTM": Case(
        [node("LSTM", "x w r", "y", hidden_size=32)], {"w": normal(1, 128, 40), "r": normal(1, 128, 32) / 8}, (6, 2, 40)
    ),
    "LSTM, both ways": Case(
        [node("LSTM", "x w r b", "y h c", hidden_size=32, direction="bidirectional")],
        {"w": normal(2, 128, 40) / 4, "r": normal(2, 128, 32) / 8, "b": normal(2, 256)},
        (6, 2, 40),
        results=("y", "h", "c"),
    ),
    "GRU": Case(
        [node("GRU", "x w r", "y", hidden_size=32)],
        {"w": normal(1, 96, 40) / 4, "r": normal(1, 96, 32) / 8},
        (6, 2, 40),
    ),
    "Gather": Case([node("Gather", "w x")], {"w": normal(50, 64)}, (2, 7), ids=50),
    "Gather and MatMul on one weight": Case(
        [node("Gather", "w x", "e"), node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "e t")],
        {"w": normal(50, 64)},
        (2, 7),
        ids=50,
    ),
    "two products on one weight": Case(
        [node("MatMul", "x w", "h"), node("MatMul", "h w")], {"w": normal(64, 64) / 8}, (5, 64)
    ),
}  # fmt: skip


def run(path: Path, feed: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray[Any, Any]] = session.run(None, {"x": feed})
    return found


def sqnr(path: Path, other: Path, feed: np.ndarray[Any, Any]) -> float:
    """dB, of the worst output."""
    pairs = zip(run(path, feed), run(other, feed), strict=True)
    return min(float(10 * np.log10(np.square(a).sum() / np.square(a - b).sum())) for a, b in pairs)


def quantized(case: Case, folder: Path, precision: str, **options: Any) -> tuple[Path, Path]:
    source = case.save(folder / "model.onnx")
    output = folder / "small.onnx"
    onnxport.quantize_model(source, precision, output=output, validate=False, **options)
    onnx.checker.check_model(output, full_check="nbits" not in options.values())
    return source, output


def float_elements(path: Path) -> int:
    """Elements of the largest float tensor in the file."""
    sizes = [
        int(np.prod(each.dims))
        for each in onnx.load(path).graph.initializer
        if each.data_type == TensorProto.FLOAT
    ]
    return max(sizes, default=0)


@pytest.mark.parametrize("format_", ["dequantize", "nbits"])
@pytest.mark.parametrize(
    ("precision", "block", "least"),
    [
        ("int8-weights", None, 36),
        ("int8-weights", 32, 36),
        ("int4-weights", None, 15),
        ("int4-weights", 16, 16),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_every_form_of_weight_is_stored_in_fewer_bits(
    name: str, precision: str, block: int | None, least: float, format_: str, tmp_path: Path
) -> None:
    case = CASES[name]
    source, output = quantized(case, tmp_path, precision, block=block, weights_format=format_)
    largest = max(weight.size for weight in case.weights.values())
    assert float_elements(output) < largest / 8
    assert sqnr(source, output, case.feed) > least


@pytest.mark.parametrize("precision", ["int8-weights", "int4-weights"])
def test_inputs_and_outputs_stay_what_they_are(precision: str, tmp_path: Path) -> None:
    source, output = quantized(CASES["LSTM, both ways"], tmp_path, precision)
    before, after = onnx.load(source).graph, onnx.load(output).graph
    assert [each.name for each in after.output] == ["y", "h", "c"]
    assert list(after.input) == list(before.input)


def test_weights_that_are_left_are_counted_with_the_reason(tmp_path: Path) -> None:
    case = Case(
        [node("MatMul", "x w", "h"), node("MatMul", "h small", "g"), node("Mul", "g scale")],
        {"w": normal(96, 40), "small": normal(40, 8), "scale": normal(8)},
        (5, 96),
    )
    case.save(tmp_path / "model.onnx")
    report = onnxport.quantize_model(
        tmp_path / "model.onnx", "int8-weights", output=tmp_path / "small.onnx", validate=False
    )
    notes = " ".join(report.run.artifacts[0].notes)
    assert "1 weight as int8 with a scale per row" in notes
    assert "weights that stay as they are: 1 of fewer than 512 elements" in notes


def test_an_excluded_node_keeps_its_weight(tmp_path: Path) -> None:
    case = Case(
        [node("MatMul", "x w", "h"), helper.make_node("MatMul", ["h", "v"], ["y"], name="keep me")],
        {"w": normal(96, 40), "v": normal(40, 64)},
        (5, 96),
    )
    _, output = quantized(case, tmp_path, "int8-weights", exclude=("keep me",))
    kept = {each.name: each for each in onnx.load(output).graph.initializer}
    assert np.array_equal(numpy_helper.to_array(kept["v"]), case.weights["v"])
    assert "w" not in kept


def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CannotConvertError, match="no weights to store in fewer bits: they stay for these reasons: 1 of fewer"
    ):
        quantized(Case([node("MatMul", "x w")], {"w": normal(8, 8)}, (2, 8)), tmp_path, "int4-weights")


def test_a_quantized_model_is_refused(tmp_path: Path) -> None:
    _, output = quantized(CASES["MatMul"], tmp_path, "int8-weights")
    with pytest.raises(CannotConvertError, match="is quantized already"):
        onnxport.quantize_model(output, "int4-weights", output=tmp_path / "again.onnx")


def test_weights_that_are_not_finite_stay(tmp_path: Path) -> None:
    weight = normal(96, 40)
    weight[3, 4] = np.inf
    case = Case(
        [node("MatMul", "x w", "h"), node("MatMul", "h v")], {"w": weight, "v": normal(40, 40)}, (5, 96)
    )
    _, output = quantized(case, tmp_path, "int8-weights")
    assert "w" in {each.name for each in onnx.load(output).graph.initializer}


def test_gptq_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs samples"):
        quantized(CASES["MatMul"], tmp_path, "int4-weights", weights_method="gptq")


def test_a_block_that_matmulnbits_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no blocks of 24"):
        quantized(CASES["MatMul"], tmp_path, "int4-weights", weights_format="nbits", block=24)


def test_gptq_keeps_results_nearer_than_rounding_on_inputs_that_go_together(tmp_path: Path) -> None:
    mixing = normal(12, 320)  # 320 features that follow from 12; more than GPTQ updates at once
    case = Case([node("MatMul", "x w")], {"w": normal(320, 40)}, (64, 320))
    samples = tmp_path / "samples"
    samples.mkdir()
    for number in range(8):
        np.savez(samples / f"{number}.npz", x=normal(64, 12) @ mixing)
    case.feed = normal(64, 12) @ mixing
    found = {}
    for method in ("rtn", "gptq", "hqq"):
        options = {"calib": samples} if method == "gptq" else {}
        source, output = quantized(case, tmp_path, "int4-weights", weights_method=method, **options)
        found[method] = sqnr(source, output, case.feed)
    assert found["gptq"] > found["rtn"] + 6
    assert found["hqq"] > found["rtn"] - 1


@pytest.mark.parametrize("precision", ["int8-weights", "int4-weights", "dynamic"])
def test_the_same_model_gives_the_same_bytes(precision: str, tmp_path: Path) -> None:
    _, output = quantized(CASES["Gemm"], tmp_path, precision)
    first = output.read_bytes()
    quantized(CASES["Gemm"], tmp_path, precision)
    assert output.read_bytes() == first


@pytest.mark.parametrize("precision", ["int4-weights", "int8-weights"])
def test_float16_weights_stay_float16_behind_their_integers(precision: str, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("MatMul", "x w")],
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (5, 96))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (5, 40))],
        [numpy_helper.from_array(normal(96, 40).astype(np.float16), "w")],
    )
    onnx.save(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
        tmp_path / "h.onnx",
    )
    onnxport.quantize_model(tmp_path / "h.onnx", precision, output=tmp_path / "small.onnx", validate=False)
    assert sqnr(tmp_path / "h.onnx", tmp_path / "small.onnx", normal(5, 96).astype(np.float16)) > 15


def test_batch_normalization_goes_into_the_convolution_first(tmp_path: Path) -> None:
    scaling = {name: np.abs(normal(24)) + 1 for name in ("s", "b", "m", "v")}
    nodes = [node("Conv", "x w", "h"), node("BatchNormalization", "h s b m v")]
    case = Case(nodes, {"w": normal(24, 40, 3, 3), **scaling}, (1, 40, 8, 8))
    source, output = quantized(case, tmp_path, "int8-weights")
    assert {each.op_type for each in onnx.load(output).graph.node} == {"DequantizeLinear", "Conv"}
    assert sqnr(source, output, case.feed) > 36


@pytest.mark.parametrize(
    ("precision", "format_", "named"),
    [
        ("int8-weights", "dequantize", "int8 weights"),
        ("int8-weights", "nbits", "int8 weights"),
        ("int4-weights", "dequantize", "int4 weights"),
        ("int4-weights", "nbits", "int4 weights"),
    ],
)
def test_the_judge_knows_the_precision(precision: str, format_: str, named: str, tmp_path: Path) -> None:
    source, output = quantized(CASES["Gemm"], tmp_path, precision, weights_format=format_)
    report = onnxport.validate_model(source, output)
    assert report.candidate.precision == named
    assert [each.question for each in report.judgements] == ["quality", "translation"]


@pytest.mark.parametrize(("precision", "lowest"), [("int8-weights", -128), ("int4-weights", -8)])
def test_weights_on_a_grid_without_zero_point_are_multiplied_by_as_they_are(
    precision: str, lowest: int, tmp_path: Path
) -> None:
    numbers = RANDOM.integers(lowest, -lowest, (96, 40))
    numbers[::32] = lowest
    case = Case([node("MatMul", "x w")], {"w": (numbers / 4).astype(np.float32)}, (5, 96))
    source, output = quantized(case, tmp_path, precision, weights_format="nbits")
    (product,) = onnx.load(output).graph.node
    assert len(product.input) == 3  # no zero points
    assert sqnr(source, output, case.feed) > 36  # ONNX Runtime's activations have 8 bits

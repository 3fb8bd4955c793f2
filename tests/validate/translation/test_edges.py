"""What a proof of a quantized file takes for the same, and what not, at the edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import onnxport
from onnxport.formats.model import Model
from onnxport.validate.translation.constants import Constants
from onnxport.validate.translation.proof import prove
from onnxport.validate.translation.tflite.artefact import prove_tflite
from tests.validate.translation.models import (
    BIAS,
    CODES,
    MATRIX_CODES,
    STEPS,
    WEIGHT,
    build,
    pictures,
    quantized,
    source,
)

Array = np.ndarray[Any, np.dtype[Any]]
ROW = {"m.codes": MATRIX_CODES[:1], "m.scale": np.array(1 / 64, np.float32), "m.zero": np.array(0, np.int8)}
MATRIX = {"m": MATRIX_CODES[:1] / np.float32(64)}
HALF = {"half": np.array(0.5, np.float32)}


def averaged(value: str, matrix: str, output: str = "y") -> list[onnx.NodeProto]:
    """Values between are named after the matrix: two files need not have the same names."""
    return [
        helper.make_node("GlobalAveragePool", [value], [f"{matrix}.mean"], "pool"),
        helper.make_node("Flatten", [f"{matrix}.mean"], [f"{matrix}.flat"], "flatten"),
        helper.make_node("MatMul", [f"{matrix}.flat", matrix], [output], "product"),
    ]


def test_half_a_step_beyond_a_grid_is_rounded_and_a_whole_one_is_cut() -> None:
    more = {"x.scale": 1 / 256, "b.scale": STEPS / 256}
    narrow = quantized(
        more={
            **{name: np.array(each, np.float32) for name, each in more.items()},
            "b.codes": np.array([0.5 * 64 * 256, -0.25 * 32 * 256], np.int32),
        }
    )
    picture = np.zeros((1, 1, 6, 6), np.float32)
    picture[0, 0, 0, :4] = 127 / 256, 127.4 / 256, 128 / 256, -128.4 / 256
    found = prove(source(), narrow, [{"x": picture}])
    first = next(each for each in found.coverages if each.grid.codes.name == "x.q")
    assert first.cut == 1


@pytest.mark.parametrize(
    ("start", "end", "is_same"), [(0, 2**63 - 1, True), (1, 2**63 - 1, False), (0, 5, False)]
)
def test_a_slice_that_leaves_nothing_out_may_be_missing(start: int, end: int, is_same: bool) -> None:
    numbers = {"start": np.array([start]), "end": np.array([end]), "axis": np.array([2])}
    whole = helper.make_node("Slice", ["x", "start", "end", "axis"], ["s"], "slice")
    original = build([whole, *averaged("s", "m")], numbers | MATRIX)
    candidate = build(
        [
            helper.make_node("DequantizeLinear", ["m.codes", "m.scale", "m.zero"], ["m"], "weight"),
            *averaged("x", "m"),
        ],
        ROW,
    )
    assert prove(original, candidate, pictures()).is_complete is is_same


def test_a_pad_of_zeros_may_name_them() -> None:
    pads = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    zero = {"zero": np.array(0, np.float32)}
    original = build(
        [helper.make_node("Pad", ["x", "pads"], ["p"], "pad"), *averaged("p", "m")], pads | MATRIX
    )
    weight = helper.make_node("DequantizeLinear", list(ROW), ["m.d"])
    for value, is_same in ((0, True), (1, False)):
        zero["zero"] = np.array(value, np.float32)
        nodes = [weight, helper.make_node("Pad", ["x", "pads", "zero"], ["p"], "pad"), *averaged("p", "m.d")]
        assert prove(original, build(nodes, pads | zero | ROW), pictures()).is_complete == is_same


def test_an_output_that_is_twice_the_sources_is_a_fault() -> None:
    weight = helper.make_node("DequantizeLinear", list(ROW), ["m.d"])
    original = build(averaged("x", "m"), MATRIX)
    for factor, is_same in ((1, True), (2, False)):
        constants = ROW | {"factor": np.array(factor, np.float32)}
        twice = helper.make_node("Mul", ["half", "factor"], ["y"], "twice")
        file = build([weight, *averaged("x", "m.d", "half"), twice], constants)
        assert prove(original, file, pictures()).is_complete == is_same


def test_a_reshape_to_other_sizes_is_not_nothing() -> None:
    weight = helper.make_node("DequantizeLinear", list(ROW), ["m.d"])
    largest = helper.make_node("MaxPool", ["r"], ["p"], "largest", kernel_shape=[3, 3])
    reshape = helper.make_node("Reshape", ["x", "sizes"], ["r"], "reshape")
    original = build(
        [reshape, largest, *averaged("p", "m")], MATRIX | {"sizes": np.array([1, 1, 4, 9], np.int64)}
    )
    for sizes, is_same in (([1, 1, 4, 9], True), ([1, 1, 6, 6], False)):
        constants = ROW | {"sizes": np.array(sizes, np.int64)}
        file = build([weight, reshape, largest, *averaged("p", "m.d")], constants)
        assert prove(original, file, pictures()).is_complete == is_same


@pytest.mark.parametrize("bias", [BIAS, BIAS * 0], ids=["a bias", "zeros"])
def test_a_file_of_rounded_weights_is_compared_piece_by_piece(bias: Array) -> None:
    constants = {
        "w.codes": CODES,
        "w.scale": STEPS,
        "w.zero": np.zeros(2, np.int8),
        "m.codes": MATRIX_CODES,
        "m.scale": np.array(1 / 64, np.float32),
        "m.zero": np.array(0, np.int8),
        "b": bias,
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w.codes", "w.scale", "w.zero"], ["w.d"], axis=0),
        helper.make_node("DequantizeLinear", ["m.codes", "m.scale", "m.zero"], ["m.d"]),
        helper.make_node("Conv", ["x", "w.d", "b"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        *averaged("r", "m.d"),
    ]
    matrix = (MATRIX_CODES + np.float32([[0.3, -0.2], [0.1, 0.4]])) / np.float32(64)
    exact = build([*nodes[2:4], *averaged("r", "m")], {"w.d": WEIGHT, "b": bias, "m": matrix})
    file = build(nodes, constants)
    found = prove(exact, file, pictures())
    assert found.is_complete
    assert found.weights == 2
    # From what the matrix multiplies, which lies on no grid, to the output.
    assert found.arithmetic.pieces == 1
    assert 0 < found.arithmetic.furthest < 1


def test_constants_are_folded_in_their_own_type() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g () => (float root, int64[2] ids)
        <float two = {2}, int64[3] all = {1099511627777, 5, 1099511627779}, int64[2] places = {2, 0}> {
            root = Sqrt (two)
            ids = Gather (all, places)
        }"""
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    root, ids = (Constants(17).get(value) for value in graph.outputs)
    assert root is not None
    assert ids is not None
    assert root.values == np.sqrt(np.float32(2))
    assert ids.values.tolist() == [2**40 + 3, 2**40 + 1]


@pytest.mark.parametrize("bounded", [True, False])
def test_a_factor_that_moved_into_the_next_product_is_no_fault(bounded: bool) -> None:
    """Relu(x V) * 0.5 -> Flatten -> W has the 0.5 in W, as converters fold it."""
    random = np.random.default_rng(0)
    first, second = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8, 5)))

    def model(factor: float, weight: Array) -> Model:
        inner = helper.make_node("Relu" if bounded else "HardSwish", ["a"], ["b"])
        nodes = [
            helper.make_node("Gemm", ["x", "v", "bias"], ["a"]),
            inner,
            *([helper.make_node("Mul", ["b", "half"], ["c"])] if factor != 1 else []),
            helper.make_node("Reshape", ["c" if factor != 1 else "b", "shape"], ["d"]),
            helper.make_node("MatMul", ["d", "w"], ["y"]),
        ]
        numbers = {"v": first, "bias": first[0], "w": weight, "half": np.float32(factor)}
        constants = [numpy_helper.from_array(np.asarray(each), name) for name, each in numbers.items()]
        constants.append(numpy_helper.from_array(np.array([1, 24], np.int64), "shape"))
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3, 6))],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 5))],
            constants,
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return Model(ir.from_proto(proto))

    wide = np.tile(second, (3, 1))
    feeds = {"x": random.standard_normal((3, 6)).astype(np.float32)}
    found = prove(model(0.5, wide), model(1, wide * np.float32(0.5)), [feeds])
    assert list(found.findings) == []
    wrong = prove(model(0.5, wide), model(1, wide * np.float32(0.7)), [feeds])
    assert wrong.faults


@pytest.mark.parametrize(
    ("shape", "off", "is_same"), [((4, 1), 1.0, True), ((4, 1), 1.2, False), ((1, 4), 1.0, False)]
)
def test_channels_before_a_view_as_an_image_may_have_factors_that_its_convolution_takes_back(
    shape: tuple[int, int], off: float, is_same: bool
) -> None:
    """Exp(x) * k -> [1, 4, 1, 4] -> Conv with W / k, as TFLite has a Conv over one axis; a k of rows is none."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((5, 4, 1, 3)).astype(np.float32)
    factor = random.uniform(1, 4, 4).astype(np.float32)

    def model(scale: Array | None, weight: Array) -> Model:
        scaled = [] if scale is None else [helper.make_node("Mul", ["a", "k"], ["b"])]
        numbers = {"w": weight, "sizes": np.array([1, 4, 1, 4])} | ({} if scale is None else {"k": scale})
        graph = helper.make_graph(
            [
                helper.make_node("Exp", ["x"], ["a"]),
                *scaled,
                helper.make_node("Reshape", ["b" if scaled else "a", "sizes"], ["c"]),
                helper.make_node("Conv", ["c", "w"], ["y"], pads=[0, 1, 0, 1]),
            ],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 4, 4))],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 5, 1, 4))],
            [numpy_helper.from_array(each, name) for name, each in numbers.items()],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return Model(ir.from_proto(proto))

    taken_back = weight / factor[:, None, None] * np.float32([1, off, 1, 1])[:, None, None]
    feeds = {"x": random.standard_normal((1, 4, 4)).astype(np.float32)}
    found = prove(model(None, weight), model(factor.reshape(1, *shape), taken_back), [feeds])
    assert (not found.findings) == is_same
    assert bool(found.faults) != is_same


@pytest.mark.parametrize(("cut", "is_same"), [(1.0, True), (1.2, False)])
def test_channels_made_alike_keep_their_bound_times_their_factor(cut: float, is_same: bool) -> None:
    """Clip(LeakyRelu(x V)) W: a channel k times as far has its bound k times as far, and W / k in the next product."""
    random = np.random.default_rng(0)
    first, second = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8, 5)))
    factor = random.uniform(1, 4, 8).astype(np.float32)

    def model(after: dict[str, Array], nodes: list[onnx.NodeProto]) -> Model:
        numbers = {"v": first, "w": second, "lower": np.float32(-0.4)} | after
        graph = helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "v"], ["a"]),
                helper.make_node("LeakyRelu", ["a"], ["b"], alpha=0.2),
                *nodes,
                helper.make_node("MatMul", ["d", "w"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3, 6))],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (3, 5))],
            [numpy_helper.from_array(np.asarray(each), name) for name, each in numbers.items()],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return Model(ir.from_proto(proto))

    source = model({}, [helper.make_node("Max", ["b", "lower"], ["d"])])
    alike = model(
        {"w": second / factor[:, None], "k": factor, "lower": np.float32(-0.4 * cut)},
        [helper.make_node("Max", ["b", "lower"], ["c"]), helper.make_node("Mul", ["c", "k"], ["d"])],
    )
    found = prove(source, alike, [{"x": random.standard_normal((3, 6)).astype(np.float32)}])
    assert found.is_complete == is_same
    assert bool(found.findings) != is_same


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_norm_behind_a_corrected_bias_may_be_rounded_too(seed: int, tmp_path: Path) -> None:
    """Relu(x W + b) * k, as a norm behind Relu is: k in 8 bits moves weight and corrected bias by the same factor."""
    random = np.random.default_rng(seed)
    shapes = {"w": (24, 32), "b": (32,), "a": (32,), "v": (32, 4)}
    numbers = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    numbers["k"] = random.uniform(0.3, 12, 32).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "first"),
        helper.make_node("Add", ["m", "b"], ["s"], "bias"),
        helper.make_node("Relu", ["s"], ["t"], "relu"),
        helper.make_node("Mul", ["t", "k"], ["u"], "scale"),
        helper.make_node("Add", ["u", "a"], ["q"], "shift"),
        helper.make_node("MatMul", ["q", "v"], ["y"], "second"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 24))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 4))],
        [numpy_helper.from_array(each, name) for name, each in numbers.items()],
    )
    source, made = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), source)
    samples = tmp_path / "samples"
    samples.mkdir()
    for number in range(16):
        np.savez(samples / f"{number}.npz", x=random.uniform(2, 3, (1, 24)).astype(np.float32))
    assert onnxport.quantize_model(source, "int8", calib=samples, output=made).report.verdict == "proven"
    wrong = onnx.load(made)
    held = {each.name: each for each in wrong.graph.initializer}
    codes, step = (numpy_helper.to_array(held[f"b.{part}"]).copy() for part in ("quantized", "scale"))
    codes[3] += np.int32(12 / step.reshape(-1)[3])
    held["b.quantized"].CopyFrom(numpy_helper.from_array(codes, "b.quantized"))
    onnx.save(wrong, tmp_path / "wrong.onnx")
    assert onnxport.validate_model(source, tmp_path / "wrong.onnx").verdict == "not equivalent"


def test_a_corrected_bias_behind_pixels_in_rows_is_no_fault(tmp_path: Path) -> None:
    """Conv -> Transpose to channels last -> Reshape -> Gemm: declared means have the file's order, not the proof's."""
    random = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "v": (10, 288), "c": (10,)}
    numbers = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    numbers |= {"sizes": np.array([1, 288])}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["m"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("Transpose", ["r"], ["t"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["t", "sizes"], ["u"], "rows"),
        helper.make_node("Gemm", ["u", "v", "c"], ["y"], "second", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 6, 6))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 10))],
        [numpy_helper.from_array(each, name) for name, each in numbers.items()],
    )
    source = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), source)
    samples = tmp_path / "samples"
    samples.mkdir()
    for number in range(16):
        np.savez(samples / f"{number}.npz", x=random.uniform(0, 1, (1, 3, 6, 6)).astype(np.float32))
    for target in ("ort", "tflite"):
        made = onnxport.convert_model(
            source, target, tmp_path / f"m.{target}", precision="int8", calib=samples
        )
        assert made.report.verdict == "proven"


def test_a_graph_may_be_deeper_than_python_recurses() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1]))
    for _ in range(2000):
        value = ir.node("Relu", [value]).outputs[0]
    assert Constants(17).get(value) is None


@pytest.mark.parametrize(("times", "is_same"), [(1, True), (1.001, False)])
def test_a_channel_below_the_smallest_float_is_zero(times: float, is_same: bool) -> None:
    """BatchNormalization in PP-OCRv3's recognizer makes weights of 1e-78, which float32 folds to 0."""
    norm = {
        "scale": np.array([1e20, 1e-30], np.float32),
        "offset": BIAS,
        "mean": np.zeros(2, np.float32),
        "var": np.ones(2, np.float32),
    }
    # So many that no step of theirs is guessed.
    weight = (np.random.default_rng(0).normal(size=(2, 1, 6, 6)) * 1e-20).astype(np.float32)
    folded = weight * norm["scale"].reshape(2, 1, 1, 1) * np.float32(times)
    assert folded[0].any()
    assert not folded[1].any()
    original = build(
        [
            helper.make_node("Conv", ["x", "w"], ["c0"], "conv"),
            helper.make_node("BatchNormalization", ["c0", *norm], ["c"], "norm", epsilon=0.0),
            *averaged("c", "m"),
        ],
        {"w": weight, "m": MATRIX_CODES / np.float32(64), **norm},
    )
    whole = ROW | {"m.codes": MATRIX_CODES}
    candidate = build(
        [
            helper.make_node("DequantizeLinear", list(ROW), ["m.d"]),
            helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"),
            *averaged("c", "m.d"),
        ],
        {"w": folded, "b": BIAS, **whole},
    )
    found = prove(original, candidate, pictures())
    assert found.is_complete is is_same, str(found)


@pytest.mark.parametrize(
    ("corrected", "is_complete"), [(0.0, True), (1.0, True), (2.0, False), (-1.0, False)]
)
def test_a_bias_may_make_up_for_a_rounded_shift(corrected: float, is_complete: bool) -> None:
    """A shift in front of a padded product is rounded to what a zero point holds; its bias takes that back, or not."""
    step, shift = np.float32(1 / 64), np.float32(10.4 / 64)

    def moved(shifted: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Sigmoid", ["x"], ["gate"], "gate"),
            helper.make_node("Add", ["gate", "shift"], [shifted], "add"),
        ]

    tail = [
        helper.make_node("Conv", ["a", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["y"], "flatten"),
    ]
    original = build([*moved("a"), *tail], {"w": WEIGHT, "b": BIAS, "shift": shift})
    taken = corrected * 0.4 / 64 * WEIGHT.sum(axis=(1, 2, 3))
    grid = {"step": step, "zero": np.array(0, np.uint8)}
    weight = {"w.codes": CODES, "w.scale": STEPS, "w.zero": np.zeros(2, np.int8)}
    candidate = build(
        [
            helper.make_node("DequantizeLinear", ["code", "step", "zero"], ["shift"], "stored"),
            helper.make_node("DequantizeLinear", list(weight), ["w"], "weight", axis=0),
            *moved("s"),
            helper.make_node("QuantizeLinear", ["s", "step", "zero"], ["q"], "quantize"),
            helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["a"], "dequantize"),
            *tail,
        ],
        {**grid, **weight, "code": np.array(10, np.uint8), "b": (BIAS + taken).astype(np.float32)},
    )
    assert prove(original, candidate, pictures()).is_complete is is_complete


@pytest.mark.parametrize(("axis", "is_same"), [(1, True), (-1, True), (0, False), (-2, False)])
def test_an_axis_from_the_front_is_the_same_from_the_end(axis: int, is_same: bool) -> None:
    """Behind a Scaler, as scikit-learn's exporter writes it, ONNX knows no rank: only one side can count."""
    scaler = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.0], scale=[1.0])
    softmax = helper.make_node("Softmax", ["half"], ["y"], "softmax", axis=1)
    original = build([scaler, *averaged("s", "m", "half"), softmax], MATRIX)
    moved = helper.make_node("Softmax", ["half"], ["y"], "softmax", axis=axis)
    weight = helper.make_node("DequantizeLinear", list(ROW), ["m.d"])
    file = build([weight, scaler, *averaged("s", "m.d", "half"), moved], ROW)
    file.graph.node("softmax").outputs[0].shape = ir.Shape([1, 2])
    assert prove(original, file, pictures()).is_complete is is_same


def embeddings(places: Array) -> onnx.ModelProto:
    """Rows of a table of words, each with the row of its place added, times a matrix."""
    random = np.random.default_rng(3)
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["word"]),
        helper.make_node("Shape", ["ids"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["numbers"]),
        helper.make_node("Gather", ["places", "numbers"], ["place"]),
        helper.make_node("Add", ["word", "place"], ["sum"]),
        helper.make_node("MatMul", ["sum", "matrix"], ["y"]),
    ]
    constants = {
        "words": random.standard_normal((500, 64)).astype(np.float32),
        "matrix": random.standard_normal((64, 16)).astype(np.float32),
        "places": places,
        "one": np.array(1),
        "zero": np.array(0),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", "length", 16])],
        [numpy_helper.from_array(each, name) for name, each in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("most", "is_same"), [(1.0, True), (3.0, False)])
def test_integers_of_a_table_may_cut_off_its_largest_numbers(
    most: float, is_same: bool, tmp_path: Path
) -> None:
    """4 bits with the least squared error cut off some; the source's numbers beyond are then `most` times as large."""
    places = np.random.default_rng(4).standard_normal((64, 64)).astype(np.float32)
    onnx.save(embeddings(places), tmp_path / "m.onnx")
    made = tmp_path / "m.tflite"
    onnxport.convert_model(tmp_path / "m.onnx", "tflite", made, precision="int4-weights", validate=False)
    large = np.where(np.abs(places) > 2, places * np.float32(most), places)
    original = Model(ir.from_proto(embeddings(large)))
    found = prove_tflite(original, made, [{"ids": np.arange(20, dtype=np.int64).reshape(2, 10)}])
    assert found.is_complete == is_same


@pytest.mark.parametrize(("stored", "is_same"), [(0.5, True), (0.4, False)])
def test_a_number_at_the_end_of_its_grid_is_not_cut_off(stored: float, is_same: bool) -> None:
    """A single number always stands there: nothing tells a cut from another number."""
    original = build([helper.make_node("Mul", ["x", "half"], ["s"]), *averaged("s", "m")], MATRIX | HALF)
    codes = {"c": np.array(127, np.int8), "step": np.array(stored / 127, np.float32)}
    candidate = build(
        [
            helper.make_node("DequantizeLinear", ["c", "step"], ["k"]),
            helper.make_node("Mul", ["x", "k"], ["s"]),
            *averaged("s", "m"),
        ],
        MATRIX | codes,
    )
    assert prove(original, candidate, pictures()).is_complete == is_same

"""`--fit gpu`: what LiteRT's GPU runtime refuses or computes wrongly becomes what it computes right.

Each artefact is proven on the CPU, and on the GPU runtime where there is a device.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.errors import CannotConvertError, UsageError
from onnxport.reports.run_report import ArtifactRecord
from onnxport.runtimes import vulkan
from onnxport.runtimes.litert_gpu import TfliteGpuRuntime

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits" / "digits.onnx"
lacking = vulkan.lacking()

# Name -> the graph in ONNX's notation, and the operators of the plain artefact that the fitted one must not have.
CASES = {
    "hard sigmoid": ("g (float[1,4,8,8] x) => (float[1,4,8,8] y) { y = HardSigmoid (x) }", "RELU_0_TO_1"),
    "the largest and their places": (
        "g (float[1,2,5,5] x) => (float[1,2,5,5] y, int64[1,2,5,5] z) "
        "{ y, z = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) }",
        "",
    ),
    "the largest of numbers below those that the GPU's maxima start with": (
        "g (float[1,2,8,8] x) => (float[1,2,4,4] y, float[1,2,8,8] z) <float c = {30000}> "
        "{ a = Mul (x, c) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a) "
        "z = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a) }",
        "",
    ),
    "the largest of numbers that an activation keeps above 0, padded": (
        "g (float[1,2,8,8] x) => (float[1,2,4,4] y) "
        "{ a = Relu (x) y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (a) }",
        "LEAKY_RELU",
    ),
    "a recurrence of more steps than a CPU has unrolled": (
        "g (float[33,1,2] x) => (float[33,1,1,2] y, float[1,1,2] h) "
        "<float[1,6,2] w = {0.5,-0.3,0.2,0.7,-0.6,0.1,0.4,0.8,-0.2,0.3,0.9,-0.5}, "
        "float[1,6,2] r = {0.1,0.4,-0.7,0.2,0.6,-0.1,0.3,-0.4,0.5,0.2,-0.3,0.8}> "
        "{ y, h = GRU <hidden_size = 2> (x, w, r) }",
        "WHILE",
    ),
    "mirrored rows": (
        'g (float[1,64] x) => (float[1,80] y) <int64[4] p = {0, 8, 0, 8}> { y = Pad <mode = "reflect"> (x, p) }',
        "MIRROR_PAD",
    ),
    "a table of embeddings": (
        "g (int64[1,6] x) => (float[1,6,4] y) <float[5,4] t = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2}, "
        "int64 n = {5}> { i = Mod <fmod = 0> (x, n) y = Gather (t, i) }",
        "",
    ),
    "the index of the largest": (
        "g (float[1,7,3] x) => (int64[1,7] y) { y = ArgMax <axis = 2, keepdims = 0> (x) }",
        "",
    ),
    "the index of the smallest": (
        "g (float[2,9] x) => (int64[2] y) { y = ArgMin <axis = 1, keepdims = 0> (x) }",
        "ARG_MIN",
    ),
    "heads of attention": (
        "g (float[2,6,24] x) => (float[3,2,2,6] y) <int64[5] s = {2,6,3,2,4}, int64[1] a = {4}> "
        "{ r = Reshape (x, s) t = Transpose <perm = [2,0,3,1,4]> (r) y = ReduceSum <keepdims = 0> (t, a) }",
        "",
    ),
    "a slope for each channel and a batch": (
        "g (float[2,3,4,4] x) => (float[2,3,4,4] y) <float[3,1,1] a = {0.5, 2.0, -1.0}> { y = PRelu (x, a) }",
        "",
    ),
    "one steep slope": (
        "g (float[1,3,4,4] x) => (float[1,3,4,4] y) { y = LeakyRelu <alpha = 2.5> (x) }",
        "LEAKY_RELU",
    ),
    "padding before a mean": (
        "g (float[1,4,8,8] x) => (float[1,4,8,8] y) "
        "{ y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (x) }",
        "",
    ),
    "a batch that one side has": (
        "g (float[2,3,4,8] x, float[1,3,8,6] z) => (float[2,3,4,6] y) { y = MatMul (x, z) }",
        "",
    ),
    "a matrix for all batches": (
        "g (float[3,4,8] x, float[8,6] z) => (float[3,4,6] y) { y = MatMul (x, z) }",
        "",
    ),
    "a matrix by itself": ("g (float[1,4,4] x) => (float[1,4,4] y) { y = MatMul (x, x) }", ""),
    "a constant in front": (
        "g (float[1,3,4] x) => (float[1,2,4] y) <float[2,3] w = {1,2,3,4,5,6}> { y = MatMul (w, x) }",
        "",
    ),
    "a column of constants": (
        "g (float[4,5] x) => (float[4,5] y) <float[4,1] c = {1,2,3,4}> { y = Add (x, c) }",
        "",
    ),
    "an input given back": ("g (float[1,3] x) => (float[1,3] y) { y = Identity (x) }", ""),
    "blocks of a batch": (
        "g (float[2,3,4,6] x) => (float[2,12,2,3] y) { y = SpaceToDepth <blocksize = 2> (x) }",
        "",
    ),
    "a log of shares": ("g (float[2,5] x) => (float[2,5] y) { y = LogSoftmax (x) }", "LOG_SOFTMAX"),
    "neighbouring channels": (
        "g (float[1,6,3,3] x) => (float[1,6,3,3] y) { y = LRN <size = 3, alpha = 0.5> (x) }",
        "LOCAL_RESPONSE_NORMALIZATION",
    ),
    "a running sum backwards": (
        "g (float[3,5] x) => (float[3,5] y) <int64 a = {1}> "
        "{ y = CumSum <exclusive = 1, reverse = 1> (x, a) }",
        "",
    ),
    "the three largest of five": (
        "g (float[2,5] x) => (float[2,3] y, int64[2,3] i) <int64[1] k = {3}> { y, i = TopK (x, k) }",
        "",
    ),
    "groups of two channels": (
        "g (float[1,4,5,5] x) => (float[1,6,5,5] y) "
        "{ w = Constant <value_floats = [" + ", ".join(["0.1", "-0.2", "0.3"] * 4) + "]> () "
        "s = Constant <value_ints = [6, 2, 1, 1]> () v = Reshape (w, s) y = Conv <group = 2> (x, v) }",
        "",
    ),
    "elements backwards": (
        "g (float[2,6] x) => (float[2,3] y) "
        "<int64[1] b = {5}, int64[1] e = {-9}, int64[1] a = {1}, int64[1] s = {-2}> { y = Slice (x, b, e, a, s) }",
        "",
    ),
    "tuples of indices": (
        "g (float[3,4,2] x) => (float[2,2] y) <int64[2,2] i = {0, 1, 2, 3}> { y = GatherND (x, i) }",
        "GATHER_ND",
    ),
    "rows written into zeros": (
        "g (float[2,3] x) => (float[4,3] y) <float[4,3] z = {0,0,0,0,0,0,0,0,0,0,0,0}, int64[2,1] i = {3, 1}> "
        "{ y = ScatterND (z, i, x) }",
        "SCATTER_ND",
    ),
    "six axes": (
        "g (float[2,3,4,5] x) => (float[2,3,4,5] y) <int64[6] s = {2,1,3,2,2,5}, int64[4] r = {2,3,4,5}> "
        "{ a = Reshape (x, s) b = Sigmoid (a) c = ReduceMean <axes = [4], keepdims = 1> (b) d = Sub (b, c) "
        "y = Reshape (d, r) }",
        "",
    ),
    "a choice between branches": (
        "g (float[1,4] x) => (float[1,4] y) { s = ReduceSum <keepdims = 0> (x) z = Constant <value_float = 0.0> () "
        "c = Greater (s, z) y = If (c) <then_branch = t () => (float[1,4] u) { u = Neg (x) }, "
        "else_branch = e () => (float[1,4] v) { v = Exp (x) }> }",
        "IF",
    ),
    "a constant for each channel, chosen": (
        "g (float[1,2,3] x) => (float[1,2,3] y) <float[3] c = {1,2,3}, float z = {0}> "
        "{ b = Greater (x, z) y = Where (b, x, c) }",
        "",
    ),
    "odd powers of negative numbers": (
        "g (float[1,2,8] x, float[1,1,8] z) => (float[1,2,8] y, float[1,2,8] w, float[1,2,8] v) "
        "<float e = {5}, float i = {-1}, float[2,1] m = {3, 7}> "
        "{ a = Round (z) c = Pow (x, e) d = Pow (x, m) y = Add (c, d) w = Pow (x, a) v = Pow (x, i) }",
        "",
    ),
    "powers of constants": (
        "g (float[1,2,8] x) => (float[1,2,8] y, float[1,2,8] w) <float b = {3}, float[2,1] c = {2, 0.5}> "
        "{ a = Tanh (x) y = Pow (b, x) w = Pow (c, a) }",
        "",
    ),
    "one tensor twice": (
        "g (float[1,2,8] x) => (float[1,2,8] y, float[1,2,8] w, float[1,2,8] v) "
        "{ a = Sub (x, x) y = Add (a, x) b = Div (x, x) w = Mul (b, x) v = Max (x, x) }",
        "",
    ),
    "flags, repeated and backwards": (
        "g (float[1,3,1,6] x) => (bool[1,3,5,3] y) <int64[4] s = {1,3,5,6}, int64[1] b = {5}, int64[1] e = {-9}, "
        "int64[1] a = {3}, int64[1] t = {-2}, float z = {0}> "
        "{ f = Greater (x, z) g = Expand (f, s) y = Slice (g, b, e, a, t) }",
        "",
    ),
    "flags and a constant one": (
        "g (float[1,2,3] x) => (bool[1,2,3] y) <bool t = {1}, bool[2,1] k = {0, 1}, float z = {0}> "
        "{ f = Greater (x, z) g = Xor (f, t) h = Or (g, k) y = And (h, t) }",
        "",
    ),
    "places as flags of integers": (
        "g (float[1,2,5] x) => (int64[1,2,5] y) <int64 d = {5}, int64[2] v = {0, 7}> "
        "{ i = ArgMax <axis = 2, keepdims = 0> (x) y = OneHot (i, d, v) }",
        "",
    ),
    "a running sum of integers": (
        "g (int32[3,5] x) => (int32[3,5] y) <int64 a = {1}, int32 n = {99}> "
        "{ m = Mod (x, n) y = CumSum (m, a) }",
        "",
    ),
    "a single number": (
        "g (float[2,4] x) => (float y) { a = ReduceSum <keepdims = 0> (x) y = Tanh (a) }",
        "",
    ),
    "shares of rows that a mask may hide whole": (
        "g (float[2,2,8,2] x, float[2,1,8,2] m) => (float[2,2,8,2] y) "
        "<float z = {0}, float l = {-inf}> { k = Greater (m, z) b = Where (k, z, l) s = Add (x, b) "
        "p = Softmax <axis = -1> (s) n = IsNaN (p) y = Where (n, z, p) }",
        "",
    ),
    "shares of rows that begin with a mask": (
        "g (float[1,2,3,6] x) => (float[1,2,3,6] y, float[1,2,3,6] z) <float[6] m = {-inf, 0, 0, 0, -inf, 0}> "
        "{ s = Add (x, m) y = Softmax <axis = -1> (s) z = LogSoftmax <axis = -1> (s) }",
        "",
    ),
    "the largest and smallest of numbers and infinities": (
        "g (float[2,3,6] x) => (float[2,3] y, float[2,3] z, float[2,3,5] t, int64[2,3,5] i, int64[2,3] a) "
        "<float[6] m = {-inf, 0, 0, -inf, 0, 0}, int64[1] k = {5}> "
        "{ s = Add (x, m) n = Sub (x, m) y = ReduceMax <axes = [-1], keepdims = 0> (s) "
        "z = ReduceMin <axes = [-1], keepdims = 0> (n) t, i = TopK (s, k) a = ArgMin <axis = -1, keepdims = 0> (n) }",
        "",
    ),
    "the largest of nothing but infinities": (
        "g (float[2,6] x, float[2,6] w) => (float[2] y) <float z = {0}, float l = {-inf}> "
        "{ b = Greater (w, z) s = Where (b, x, l) y = ReduceMax <axes = [-1], keepdims = 0> (s) }",
        "",
    ),
    "repeated rows": (
        "g (float[1,3,1,4] x) => (float[2,3,5,4] y) <int64[4] s = {2,3,5,4}> { y = Expand (x, s) }",
        "BROADCAST_TO",
    ),
}


def _made(text: str, folder: Path, **options: Any) -> ArtifactRecord:
    """Convert the model that `text` says, and return the record of its `.tflite`; arrays are constants."""
    source = folder / "m.onnx"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    weights = {name: options.pop(name) for name in list(options) if isinstance(options[name], np.ndarray)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, source)
    return onnxport.convert_model(source, "tflite", folder / "m.tflite", **options).run.artifacts[0]


@pytest.mark.parametrize("name", CASES)
def test_it_is_right_there(name: str, tmp_path: Path) -> None:
    text, lacks = CASES[name]
    record = _made(text, tmp_path, fit="gpu")
    assert record.report.verdict == "proven", record.report.reason
    if lacks:
        assert lacks not in record.facts["operators"]
    if not lacking or os.environ.get("CI"):
        assert any("GPU runtime on" in note and "proven" in note for note in record.report.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "g (float[1,8] x) => (float[1,8] y) <float c = {300.0}, float d = {0.00001}> "
            "{ a = Mul (x, c) b = Mul (a, c) [high] e = Mul (b, c) [elu] z = Elu (e) y = Mul (z, d) }",
            "values go beyond float16: Mul 'high', Elu 'elu', Mul 'y'",
        ),
        (
            "g (float[1,8] x) => (float[1,8] y) <float c = {300.0}, float d = {0.00001}> "
            "{ a = Mul (x, c) b = Mul (a, c) e = Mul (b, c) y = Mul (e, d) }",
            "scaled by powers of two that the weights around them take up: 'b', 'e'",
        ),
        ("g (float[1,8] x) => (float[1,8] y) { a = Sigmoid (x) y = Mul (a, a) }", "sets of samples fit it"),
    ],
    ids=["overflow", "scaled", "sound"],
)
def test_what_a_gpu_in_float16_would_lose_is_told_before_a_phone_shows_it(
    text: str, said: str, tmp_path: Path
) -> None:
    notes = _made(text, tmp_path, fit="gpu").notes
    assert any("a GPU that computes in float16" in note and said in note for note in notes), notes


def test_large_weights_take_a_scale_and_the_model_is_measured_again(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    weights = {name: generator.normal(0, 9, (32, 32)).astype(np.float32) for name in "uvw"}
    weights["v"] *= 1000
    text = "g (float[1,32] x) => (float[1,32] y) { a = MatMul (x, u) b = Tanh (a) c = MatMul (b, v) d = Relu (c) "
    notes = _made(text + "y = MatMul (d, w) }", tmp_path, fit="gpu", **weights).notes
    assert any("scaled by powers of two" in note and "'c', 'd'" in note for note in notes), notes
    assert not any("not measured" in note for note in notes), notes


def test_what_has_no_form_there_is_refused_by_its_node(tmp_path: Path) -> None:
    text = "g (float[1,8] x) => (int64[2,N] y) { y = NonZero (x) }"
    with pytest.raises(CannotConvertError) as caught:
        _made(text, tmp_path, fit="gpu")
    assert [each.node for each in caught.value.refusals] == ["y"]


def test_half_precision_holds_infinity_there(tmp_path: Path) -> None:
    """The GPU stores infinities of float16 as NaN, and moves of float16 change its last bits."""
    text = "g (float16[1,2,4] x, float[1,8] z) => (float16[1,4,2] y, float16[1,8] w) "
    text += "{ y = Transpose <perm = [0, 2, 1]> (x) w = Cast <to = 10> (z) }"
    record = _made(text, tmp_path, fit="gpu")
    assert any("float32 in the file" in note and "'x', 'y', 'w'" in note for note in record.notes), (
        record.notes
    )
    x = np.array([np.inf, -np.inf, np.nan, 65504, -3e4, 1, 6e-8, 6e-5], np.float16).reshape(1, 2, 4)
    z = np.array([[np.inf, -np.inf, np.nan, 1e6, -70_000, 65_519, 6e-8, 1e-10]], np.float32)
    if lacking and not os.environ.get("CI"):
        pytest.skip(f"needs {lacking}")
    with TfliteGpuRuntime(tmp_path / "m.tflite") as runtime:
        found = runtime.run({"x": x, "z": z})
    np.testing.assert_array_equal(found["y"], x.transpose(0, 2, 1))
    inf = np.inf
    np.testing.assert_array_equal(found["w"], np.float16([[inf, -inf, np.nan, inf, -inf, 65_504, 6e-8, 0]]))


def test_a_rounding_that_the_gpu_leaves_out_is_refused(tmp_path: Path) -> None:
    text = "g (float[1,8] x) => (float[1,8] y) { a = Cast <to = 10> (x) y = Cast <to = 1> (a) }"
    with pytest.raises(CannotConvertError, match="not rounded") as caught:
        _made(text, tmp_path, fit="gpu")
    assert [each.node for each in caught.value.refusals] == ["a"]


def test_open_sizes_are_refused_with_the_option_that_fixes_them(tmp_path: Path) -> None:
    with pytest.raises(CannotConvertError, match="--shape x="):
        _made("g (float[N,4] x) => (float[N,4] y) { y = Relu (x) }", tmp_path, fit="gpu")


def test_integers_of_8_bits_run_there(tmp_path: Path) -> None:
    shape = {"image": (1, 1, 8, 8)}
    made = onnxport.convert_model(
        DIGITS,
        "tflite",
        tmp_path / "m.tflite",
        fit="gpu",
        precision="int8",
        calib=DIGITS.with_name("test.npz"),
        shape=shape,
    )
    assert made.report.verdict == "proven"
    if not lacking or os.environ.get("CI"):
        assert any("GPU runtime on" in note and "measured" in note for note in made.report.notes)


def test_weights_of_8_bits_with_a_scale_for_each_channel_become_what_it_reads(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    numbers = generator.integers(-127, 128, (64, 32), np.int8)
    numbers[0] = 127
    weights = {"w": numbers, "s": generator.uniform(0.01, 0.1, 32).astype(np.float32)}
    text = "g (float[1,64] x) => (float[1,32] y) { f = Cast <to = 1> (w) v = Mul (f, s) y = MatMul (x, v) }"
    assert "DEQUANTIZE" in _made(text, tmp_path, **weights).facts["operators"]
    record = _made(text, tmp_path, fit="gpu", **weights)
    assert "DEQUANTIZE" not in record.facts["operators"]
    assert any("stored in float32" in note for note in record.notes), record.notes
    assert "DEQUANTIZE" in _made(text, tmp_path, fit="gpu", precision="fp16", **weights).facts["operators"]


def test_a_table_of_8_bits_becomes_what_it_reads(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    text = "g (int64[1,4] x) => (float[1,4,32] y) { y = Gather (w, x) }"
    record = _made(text, tmp_path, fit="gpu", precision="int8-dynamic", w=table)
    assert "DEQUANTIZE" not in record.facts["operators"]


@pytest.mark.parametrize("precision", ["int8-weights", "int4-weights", "int16x8"])
def test_a_precision_that_it_lacks_is_refused_before_anything_runs(precision: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fit gpu has no") as caught:
        onnxport.convert_model(DIGITS, "tflite", tmp_path / "m.tflite", fit="gpu", precision=precision)
    assert "--precision fp32, fp16, int8-dynamic or int8" in caught.value.fix
    assert not list(tmp_path.iterdir())


def test_without_a_device_a_note_says_that_it_was_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulkan, "lacking", lambda: "a Vulkan device")
    record = _made("g (float[1,4] x) => (float[1,4] y) { y = Relu (x) }", tmp_path, fit="gpu")
    assert any("was not asked" in note and "Vulkan" in note for note in record.report.notes)


def test_nothing_changes_without_it(tmp_path: Path) -> None:
    record = _made(CASES["hard sigmoid"][0], tmp_path)
    assert "RELU_0_TO_1" in record.facts["operators"]
    assert b'"fit"' not in (tmp_path / "m.tflite").read_bytes()

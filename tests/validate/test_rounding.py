"""The reference with a lower precision's roundings, against NumPy's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir
import pytest

from fixtures import graphs
from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.runtimes.options import OrtLevel, RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.report import Precision
from onnxport.validate.rounded_model import round_model, to_dtype

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def model(text: str, opset: int = 17) -> Model:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    return Model(onnx_ir.from_proto(proto))


def answer(source: Model, precision: Precision, feeds: dict[str, Array], level: OrtLevel = "all") -> Array:
    made = round_model(source, precision)
    assert made is not None
    (name,) = (spec.name for spec in source.outputs)
    with OrtRuntime.of_model(made, RuntimeOptions(level=level)) as runtime:
        return runtime.run(feeds)[name]


CHAIN = "g (float[N, 4] x) => (float[N, 4] y) { a = Exp(x) b = Mul(a, a) y = Sqrt(b) }"


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_every_result_is_rounded_at_every_level(precision: Precision, level: OrtLevel) -> None:
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)

    def r(values: Array) -> Array:
        return values.astype(DTYPES[precision]).astype(np.float32)

    a = r(np.exp(r(x)))
    expected = r(np.sqrt(r(a * a)))
    found = answer(model(CHAIN), precision, {"x": x}, level)
    # exp and sqrt may be off by a bit before they are rounded.
    np.testing.assert_allclose(found, expected, rtol=1.01 * float(ml_dtypes.finfo(DTYPES[precision]).eps))
    assert (found == expected).mean() > 0.9
    np.testing.assert_array_equal(found, r(found))


def test_what_float16_cannot_hold_becomes_infinite() -> None:
    x = np.array([[1.0, 6.0, 11.0, 12.0]], np.float32)
    found = answer(
        model("g (float[N, 4] x) => (float[N, 4] y) { a = Exp(x) y = Log(a) }"), "float16", {"x": x}
    )
    np.testing.assert_array_equal(np.isinf(found), [[False, False, False, True]])


def test_weights_alone_are_rounded_when_that_is_asked() -> None:
    source = Model(onnx_ir.from_proto(graphs.mlp()))
    made = round_model(source, "float16 weights")
    assert made is not None
    assert [node.op_type for node in made.graph] == [node.op_type for node in source.graph]
    for name, value in source.graph.initializers.items():
        before, after = value.const_value, made.graph.initializers[name].const_value
        assert before is not None
        assert after is not None
        np.testing.assert_array_equal(after.numpy(), before.numpy().astype(np.float16).astype(np.float32))


def test_an_epsilon_does_not_become_zero_nor_a_mask_infinite() -> None:
    half = DTYPES["float16"]
    assert to_dtype(np.array(1e-12, np.float32), half) > 0
    assert to_dtype(np.array(-3.4e38, np.float32), half) == -65504
    assert to_dtype(np.array([-3.4e38, 1.0], np.float32), half)[0] == -65504
    assert np.isinf(to_dtype(np.array([np.inf, 1.0], np.float32), half)[0])


def test_what_is_folded_before_it_is_rounded_stays_as_it_is() -> None:
    text = """g (float[1, 2, 3] x) => (float[1, 2, 3] y)
        <float[2] s = {1, 1}, float[2] b = {0, 0}, float[2] m = {0, 0}, float[2] v = {0.000000001, 1000000}>
        { y = BatchNormalization <epsilon = 0.0> (x, s, b, m, v) }"""
    x = np.full((1, 2, 3), 1e-3, np.float32)
    found = answer(model(text), "float16", {"x": x})
    np.testing.assert_allclose(found[0, :, 0], x[0, :, 0] / np.sqrt([1e-9, 1e6]), rtol=0.1)


def test_scales_of_integers_are_not_rounded() -> None:
    """float16 has no number between 0 and 6e-8; a step that became 0 would lose what it counts."""
    text = """g (float[4] x) => (float[4] y)
        <float s = {0.00000001}, int8 z = {0}, int32[4] bias = {0, 20000000, 40000000, 60000000}, int32 none = {0}>
        { q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)
          b = DequantizeLinear (bias, s, none) y = Add (d, b) }"""
    found = answer(model(text), "float16", {"x": np.array([1e-6, 0, 0, 0], np.float32)})
    np.testing.assert_allclose(found, [1e-6, 0.2, 0.4, 0.6], rtol=0.05)


def test_a_size_is_not_rounded() -> None:
    text = """g (float[1, 1, 3, 3] x) => (float[1, 1, H, W] y) <float[4] s = {1, 1, 341.3334, 341.3334}>
        { y = Resize <mode = "nearest"> (x, , s) }"""
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 3)).astype(np.float32)
    assert answer(model(text), "float16", {"x": x}).shape == (1, 1, 1024, 1024)


def test_branches_and_integers_are_kept_in_order() -> None:
    text = """g (float[3] x, bool c) => (float[3] y) {
        y = If (c) <then_branch = t () => (float[3] p) { p = Exp(x) },
                    else_branch = e () => (float[3] q) { n = Cast <to = 7> (x) f = Cast <to = 1> (n) q = Add(f, f) }>
    }"""
    x = np.array([0.1, 1.7, 2.9], np.float32)
    found = answer(model(text), "float16", {"x": x, "c": np.array(True)})
    np.testing.assert_array_equal(found, found.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(
        answer(model(text), "float16", {"x": x, "c": np.array(False)}), np.array([0, 2, 4], np.float32)
    )


def test_dithered_weights_are_other_numbers_of_the_same_precision() -> None:
    source = model("g (float[N, 4] x) => (float[N, 16] y) <float[4, 16] w> { y = MatMul(x, w) }".replace(
        "<float[4, 16] w>", f"<float[4, 16] w = {{{', '.join(str(n / 7) for n in range(64))}}}>"
    ))  # fmt: skip
    nearest, other = (round_model(source, "float16 weights", dither=seed) for seed in (None, 1))
    assert nearest is not None
    assert other is not None
    a, b = (m.graph.initializers["w"].const_value.numpy() for m in (nearest, other))  # type: ignore[union-attr]
    assert 0.1 < (a != b).mean() < 0.7
    np.testing.assert_allclose(a, b, rtol=2.0**-10)
    np.testing.assert_array_equal(b, b.astype(np.float16).astype(np.float32))


def test_old_opsets_have_no_bfloat16() -> None:
    assert round_model(model(CHAIN, opset=11), "bfloat16") is None
    assert round_model(model(CHAIN, opset=11), "float16") is not None


ISLAND = "g (float[N, 4] x) => (float[N, 4] y) { a = Exp(x) b = Mul(a, a) c = Log(b) y = Mul(c, x) }"


def test_what_is_kept_in_float32_is_not_rounded_and_does_not_overflow() -> None:
    x = np.array([[1.0, 6.0, 8.0, 9.3]], np.float32)  # exp(2 * 6) is beyond float16, exp(9.3) is within

    def r(values: Array) -> Array:
        return values.astype(np.float16).astype(np.float32)

    made = round_model(model(ISLAND), "float16", keep={"a", "b", "c"})
    assert made is not None
    with OrtRuntime.of_model(made) as runtime:
        found = runtime.run({"x": x})["y"]
    # Inside the island nothing is rounded, x on its way into it neither; what leaves it is.
    expected = r(r(np.log(np.exp(x) * np.exp(x))) * r(x))
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    np.testing.assert_array_equal(found, r(found))
    assert np.isinf(answer(model(ISLAND), "float16", {"x": x})).any()


def test_weights_that_only_an_island_reads_stay_float32() -> None:
    source = model(
        "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {0.1, 0.2, 0.3, 0.7}, float[4] v = {0.1, 0.2, 0.3, 0.7}>"
        "{ a = Mul(x, w) y = Add(a, v) }"
    )
    made = round_model(source, "float16", keep={"a"})
    assert made is not None
    kept, others = (made.graph.initializers[name].const_value for name in "wv")
    assert kept is not None
    assert others is not None
    np.testing.assert_array_equal(kept.numpy(), np.array([0.1, 0.2, 0.3, 0.7], np.float32))
    assert (others.numpy() != np.array([0.1, 0.2, 0.3, 0.7], np.float32)).any()


def test_an_output_that_is_computed_in_float32_is_not_rounded() -> None:
    x = np.array([[0.1, 0.2, 0.3, 0.7]], np.float32)
    made = round_model(model("g (float[N, 4] x) => (float[N, 4] y) { y = Exp(x) }"), "float16", keep={"y"})
    assert made is not None
    with OrtRuntime.of_model(made) as runtime:
        np.testing.assert_allclose(runtime.run({"x": x})["y"], np.exp(x), rtol=1e-6)


def test_what_overflows_on_its_way_into_a_recurrent_layer_is_not_clamped_there() -> None:
    rng = np.random.default_rng(0)
    w, r = (
        onnx.numpy_helper.from_array(rng.standard_normal((1, 8, width)).astype(np.float32), name)
        for name, width in (("w", 4), ("r", 2))
    )
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[1, N, 4] x, float[1, 8, 4] w, float[1, 8, 2] r) '
        "=> (float[1, 1, N, 2] y) { a = Mul(x, x) y = LSTM <hidden_size = 2> (a, w, r) }"
    )
    del proto.graph.input[1:]
    proto.graph.initializer.extend([w, r])
    source = Model(onnx_ir.from_proto(proto))
    small = rng.standard_normal((1, 3, 4)).astype(np.float32)
    assert np.isfinite(answer(source, "float16", {"x": small})).all()
    # 300 squared is beyond float16; ONNX Runtime's LSTM answers an infinity with a number all the same.
    large = small + np.float32(300) * (np.arange(12).reshape(1, 3, 4) == 5)
    assert np.isnan(answer(source, "float16", {"x": large.astype(np.float32)})).all()

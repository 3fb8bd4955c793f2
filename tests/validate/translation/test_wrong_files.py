"""Wrong files that a comparison may take for right ones: settings that only some shapes, opsets or sizes give away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.model import Model
from onnxport.quantize.weights.encoding import Grids
from onnxport.quantize.weights.gptq import round_gptq
from onnxport.validate.translation.proof import Proof, prove

Array = np.ndarray[Any, np.dtype[Any]]
Shape = Sequence[int | str] | None
node = helper.make_node


def build(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Any],
    x: Shape = (4, 8),
    y: Shape = None,
    opset: int = 17,
) -> Model:
    graph = helper.make_graph(
        list(nodes),
        "made by hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return Model(ir.from_proto(proto))


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def proof(source: Model, candidate: Model, *shape: int) -> Proof:
    return prove(source, candidate, [{"x": normal(*(shape or (4, 8)))}])


# ---- weights

DEPTH, CHANNELS = 128, 32


def product(weight: Array) -> Model:
    return build([node("MatMul", ["x", "w"], ["y"], "p")], {"w": weight}, ("n", DEPTH), ("n", CHANNELS))


def rounded(codes: Array, steps: Array) -> Model:
    nodes = [
        node("DequantizeLinear", ["c", "s"], ["w"], axis=1),
        node("MatMul", ["x", "w"], ["y"], "p"),
    ]
    return build(nodes, {"c": codes, "s": steps}, ("n", DEPTH), ("n", CHANNELS))


def _grid(weight: Array) -> tuple[Array, Array]:
    steps = (np.abs(weight).max(axis=0) / 127).astype(np.float32)
    return np.rint(weight / steps).astype(np.int8), steps


def check(weight: Array, codes: Array, steps: Array) -> Proof:
    return proof(product(weight), rounded(codes, steps), 16, DEPTH)


def test_weights_rounded_to_nearest_are_proven() -> None:
    weight = normal(DEPTH, CHANNELS)
    assert check(weight, *_grid(weight)).is_complete


def test_weights_that_a_grid_cuts_off_are_no_rounding() -> None:
    weight = normal(DEPTH, CHANNELS)
    steps = _grid(weight)[1] / 10
    codes = np.clip(np.rint(weight / steps), -127, 127).astype(np.int8)
    (finding,) = check(weight, codes, steps).findings
    assert finding.kind == "fault"
    assert "the ends of its grid cut off" in finding.text


def test_a_range_that_leaves_out_the_rarest_weights_is_proven() -> None:
    weight = normal(DEPTH, CHANNELS)
    steps = _grid(weight)[1] * np.float32(0.8)
    codes = np.clip(np.rint(weight / steps), -127, 127).astype(np.int8)
    found = check(weight, codes, steps)
    assert found.is_complete
    assert found.cut > 0


def test_a_channel_of_small_weights_is_compared_in_its_own_units() -> None:
    weight = normal(DEPTH, CHANNELS)
    weight[:, 3] *= 1e-6
    codes, steps = _grid(weight)
    codes[:, 3] = codes[::-1, 3]
    assert check(weight, codes, steps).faults


@pytest.mark.parametrize(("rows", "by"), [(slice(5, 6), 3), (slice(None, None, 10), 2)])
def test_few_weights_that_are_off_are_not_taken_for_rounding_of_the_least_error(rows: slice, by: int) -> None:
    weight = normal(DEPTH, CHANNELS)
    codes, steps = _grid(weight)
    changed = codes[rows, 7].astype(np.int64)
    codes[rows, 7] = np.where(changed > 100, changed - by, changed + by)
    assert "weights are more than half a step from the source's" in str(check(weight, codes, steps))


def few_rows(codes: Array, steps: Array, weight: Array) -> Proof:
    """Feed two rows, as a product behind a global pool reads them of two pictures."""
    return prove(product(weight), rounded(codes, steps), [{"x": pooled(2, seed=1)}])


def pooled(count: int, seed: int) -> Array:
    """Return rows that are alike, as pooled pixels are."""
    own = np.random.default_rng(seed).standard_normal((count, DEPTH))
    common = np.random.default_rng(2).uniform(0, 4, DEPTH)
    return np.maximum(common + 0.3 * own, 0).astype(np.float32)


def least_error(weight: Array) -> tuple[Array, Array]:
    """Return codes of 4 bits and steps of GPTQ, which saw other rows."""
    rows = pooled(16, seed=0).astype(np.float64)
    found = round_gptq(weight.T, rows.T @ rows, Grids(4, DEPTH, symmetric=True))
    return found.numbers.T.copy(), found.scales[:, 0]


def test_least_error_is_told_on_two_rows_where_rounding_to_nearest_meets_some_channel_by_chance() -> None:
    weight = normal(DEPTH, CHANNELS)
    found = few_rows(*least_error(weight), weight)
    assert found.is_complete, str(found)
    assert found.moved == 1


@pytest.mark.parametrize("name", ["a sign", "two channels", "a step"])
def test_damage_among_weights_of_the_least_error_is_told_on_two_rows(name: str) -> None:
    weight = normal(DEPTH, CHANNELS)
    codes, steps = least_error(weight)
    if name == "a sign":
        codes[:, 7] = np.clip(-codes[:, 7], -8, 7)
    elif name == "two channels":
        codes[:, [3, 9]] = codes[:, [9, 3]]
    else:
        steps[5] *= 2
    assert "weights are more than half a step from the source's" in str(few_rows(codes, steps, weight))


@pytest.mark.parametrize("shown", [4, 0], ids=["later sets", "no set"])
def test_damage_that_the_first_pictures_do_not_show_is_not_proven_right(shown: int) -> None:
    weight = normal(DEPTH, CHANNELS)
    codes, steps = least_error(weight)
    codes[:, [3, 9]] = codes[:, [9, 3]]
    black = np.zeros((1, DEPTH), np.float32)
    sets = [{"x": each} for each in (black, black, *np.split(pooled(4, seed=1), 4)[:shown])]
    assert not prove(product(weight), rounded(codes, steps), sets).is_complete


def test_a_constant_that_its_grid_cuts_off_is_another_constant() -> None:
    data = normal(4, 8)

    def shifted(scale: float) -> Model:
        nodes = [
            node("DequantizeLinear", ["c", "s"], ["k"]),
            node("Sin", ["x"], ["t"]),
            node("Pow", ["t", "k"], ["y"], "power"),
        ]
        return build(nodes, {"c": np.int8(127), "s": np.float32(scale)})

    source = build([node("Sin", ["x"], ["t"]), node("Pow", ["t", "k"], ["y"], "power")], {"k": np.float32(4)})
    assert prove(source, shifted(4 / 127), [{"x": data}]).is_complete
    assert "another constant" in str(prove(source, shifted(1 / 127), [{"x": data}]))


# ---- settings


def reshape(*sizes: int) -> Model:
    nodes = [node("Reshape", ["x", "r"], ["z"], "view"), node("Softmax", ["z"], ["y"], "sm", axis=-1)]
    return build(nodes, {"r": np.array(sizes)}, ("n", "m"))


def prelu(slopes: Array) -> Model:
    return build([node("PRelu", ["x", "s"], ["y"], "slopes")], {"s": slopes}, (1, 3, 3, 3))


def grid(step: float) -> Model:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Softmax", ["d"], ["y"], "sm"),
    ]
    return build(nodes, {"s": np.float32(step), "z": np.int8(0)})


def softmax(opset: int = 17, **attributes: int) -> Model:
    return build([node("Softmax", ["x"], ["y"], "sm", **attributes)], {}, (2, 3, 4), opset=opset)


def average(**attributes: Any) -> Model:
    nodes = [node("AveragePool", ["x"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2], **attributes)]
    return build(nodes, {}, (1, 3, 3, 3))


def narrowed() -> Model:
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
        node("Softmax", ["f"], ["y"], "sm"),
    ]
    return build(nodes, {})


def plain() -> Model:
    return build([node("Softmax", ["x"], ["y"], "sm")], {})


SLOPES = np.array([0.1, 0.2, 0.3], np.float32)
PICTURE = (1, 3, 3, 3)
CASES: dict[str, tuple[Model, Model, tuple[int, ...], str]] = {
    "a reshape of open sizes": (reshape(-1, 2, 4), reshape(-1, 4, 2), (4, 8), "its shape is (4, 4, 2)"),
    "slopes along another axis": (prelu(SLOPES.reshape(3, 1, 1)), prelu(SLOPES), PICTURE, "another constant"),
    "a grid ten times too small": (plain(), grid(0.002), (4, 8), "its grid cuts off"),
    "a softmax over all axes": (softmax(11, axis=1), softmax(17, axis=1), (2, 3, 4), "its axes"),
    "padding counted by a rounded-up pool": (
        average(ceil_mode=1, count_include_pad=0),
        average(ceil_mode=1, count_include_pad=1),
        PICTURE,
        "its count_include_pad is 1",
    ),
    "padding counted by a pool that pads by name": (
        average(auto_pad="SAME_UPPER", count_include_pad=0),
        average(auto_pad="SAME_UPPER", count_include_pad=1),
        PICTURE,
        "its count_include_pad is 1",
    ),
    "a value rounded to float16": (plain(), narrowed(), (4, 8), "it is rounded to float16"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_setting_that_differs_is_found(name: str) -> None:
    right, wrong, shape, text = CASES[name]
    assert text in str(proof(right, wrong, *shape))
    assert proof(right, right, *shape).is_complete
    assert proof(wrong, wrong, *shape).is_complete


def test_a_grid_of_4_bits_is_read() -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Softmax", ["d"], ["y"], "sm"),
    ]
    narrow = build(nodes, {"s": np.float32(0.5)}, opset=21)
    zero = numpy_helper.from_array(np.zeros((), np.int8), "z")
    zero.data_type = TensorProto.INT4
    narrow.graph.register_initializer(
        ir.Value(
            name="z",
            const_value=ir.from_proto(zero),
            type=ir.TensorType(ir.DataType.INT4),
            shape=ir.Shape([]),
        )
    )
    for each in narrow.graph:
        if each.op_type != "Softmax":
            each.replace_input_with(2, narrow.graph.initializers["z"])
    found = proof(plain(), narrow)
    assert [each.grid.limits for each in found.coverages] == [(-8, 7)]


def test_an_output_of_another_name_is_a_doubt() -> None:
    other = plain()
    other.graph.outputs[0].name = "z"
    assert [each.kind for each in proof(plain(), other).findings] == ["doubt"]


def test_a_size_rounded_up_is_the_same_where_nothing_is_left_over() -> None:
    def pool(ceil: int, size: int) -> Model:
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": ceil}
        return build([node("MaxPool", ["x"], ["y"], "pool", **attributes)], {}, (1, 1, size, size))

    assert proof(pool(1, 4), pool(0, 4), 1, 1, 4, 4).is_complete
    assert "its ceil_mode is 0" in str(proof(pool(1, 5), pool(0, 5), 1, 1, 5, 5))

"""What float16 does not hold: masks of -3.4e38, epsilons of 1e-12, and the squares that norms are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.converters.params import CoremlParams
from tests.conformance.coreml import CoremlConformance
from tests.conformance.harness import Array
from tests.converters.tflite.models import model_of, run_onnx

_ROUNDING = 4e-3  # of the largest answer: a few steps of float16


@pytest.fixture(scope="module")
def half() -> Iterator[CoremlConformance]:
    running = CoremlConformance()
    running.params = CoremlParams(precision="fp16")
    with running:
        yield running


def error(half: CoremlConformance, nodes: list[onnx.NodeProto], x: Array, **constants: Array) -> float:
    """How far the float16 package is from ONNX Runtime in float32, as a share of its largest answer."""
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model = model_of(nodes, {"x": x}, initializers)
    (expected,) = run_onnx(model, {"x": x}).values()
    (answer,) = half.convert_and_run(model, [{"x": x}])[0].values()
    return float(np.abs(answer - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_row_that_is_masked_as_a_whole_is_no_row_of_nan(half: CoremlConformance, op: str) -> None:
    """The logits lie so low that the mask's end of float16 is passed: -65504 - 40 rounds to minus infinity."""
    x = np.full((2, 3, 4), -40, np.float32)
    mask = np.zeros((2, 1, 4), np.float32)
    mask[0], mask[1, 0, 2:] = 1, 1
    nodes = [
        helper.make_node("Mul", ["mask", "lowest"], ["added"]),
        helper.make_node("Add", ["x", "added"], ["logits"]),
        helper.make_node(op, ["logits"], ["y"], axis=-1),
    ]
    lowest = np.array(np.finfo(np.float32).min)
    if op == "LogSoftmax":
        mask[1] = 0  # the logarithm of a share of nothing is as low as the mask, wherever that ends
    assert error(half, nodes, x, mask=mask, lowest=lowest) < _ROUNDING


@pytest.mark.parametrize("scale", [1e-3, 1, 3000])
@pytest.mark.parametrize("op", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
def test_norms_of_small_and_large_numbers(half: CoremlConformance, op: str, scale: float) -> None:
    x = (np.random.default_rng(0).standard_normal((2, 4, 8)) * scale).astype(np.float32)
    size = 8 if op == "LayerNormalization" else 4
    given: dict[str, Any] = {"num_groups": 2} if op == "GroupNormalization" else {}
    node = helper.make_node(op, ["x", "scale", "bias"], ["y"], epsilon=1e-12, **given)
    scales = np.linspace(0.5, 1.5, size).astype(np.float32)
    assert error(half, [node], x, scale=scales, bias=scales - 1) < _ROUNDING


@pytest.mark.parametrize("p", [1, 2])
def test_a_vector_longer_than_float16_is_divided_by_its_length(half: CoremlConformance, p: int) -> None:
    x = (np.random.default_rng(0).standard_normal((2, 100)) * 3000).astype(np.float32)
    assert error(half, [helper.make_node("LpNormalization", ["x"], ["y"], p=p)], x) < _ROUNDING


@pytest.mark.parametrize("root", ["Sqrt Div", "Sqrt Reciprocal Mul"])
def test_an_epsilon_added_by_hand_stays_what_it_is(half: CoremlConformance, root: str) -> None:
    """1e-6 beside a variance of 1e-5: the smallest normal float16, 6e-5, would more than halve the result."""
    x = (np.random.default_rng(0).standard_normal((4, 16)) * 3e-3).astype(np.float32)
    *steps, last = root.split()
    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("Mul", ["size", "share"], ["v"]),
        helper.make_node("ReduceMean", ["v", "axes"], ["mean"]),
        helper.make_node("Add", ["mean", "epsilon"], ["s0"]),
        *(helper.make_node(op, [f"s{i}"], [f"s{i + 1}"]) for i, op in enumerate(steps)),
        helper.make_node(last, ["x", f"s{len(steps)}"], ["y"]),
    ]

    constants = {"share": np.array(4e-3, np.float32), "epsilon": np.array(1e-6, np.float32)}
    assert error(half, nodes, x, axes=np.array([-1], np.int64), **constants) < 2 * _ROUNDING


def test_a_logarithm_of_what_may_be_nothing(half: CoremlConformance) -> None:
    x = np.array([[0, 1e-3, 1, 100]], np.float32)
    nodes = [helper.make_node("Add", ["x", "floor"], ["more"]), helper.make_node("Log", ["more"], ["y"])]
    assert error(half, nodes, x, floor=np.array(1e-10, np.float32)) < _ROUNDING

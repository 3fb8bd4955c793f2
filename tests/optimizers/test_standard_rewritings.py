"""Operators that ONNX defines in words, rewritten in ONNX, give the answers of ONNX Runtime's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.optimizers.decomposition import decompose
from tests.conformance.tflite import Array, Conformance, difference
from tests.converters.tflite.models import model_of, run_onnx

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


CACHE = {"cache": floats(2, 3, 5, 4), "update": floats(2, 3, 2, 4), "starts": np.array([1, 3])}
PLACE = {"axis": np.array(1, np.int64)}

# (operator, opset, operands, attributes); operands named in PLACE's way are constants.
CASES: dict[str, tuple[str, int, dict[str, Array], dict[str, Any]]] = {
    "tensor scatter": ("TensorScatter", 24, CACHE, {}),
    "tensor scatter going round": (
        "TensorScatter",
        24,
        {**CACHE, "starts": np.array([4, 3])},
        {"mode": "circular"},
    ),
    "tensor scatter from the start": ("TensorScatter", 24, dict(list(CACHE.items())[:2]), {"axis": 2}),
    "running product": ("CumProd", 26, {"x": floats(2, 5, 3), **PLACE}, {}),
    "running product, reverse": ("CumProd", 26, {"x": floats(2, 5, 3), **PLACE}, {"reverse": 1}),
    "running product, exclusive": (
        "CumProd",
        26,
        {"x": floats(2, 5, 3), **PLACE},
        {"reverse": 1, "exclusive": 1},
    ),
    "unique slices": ("Unique", 21, {"x": RANDOM.integers(0, 2, (6, 2)).astype(np.float32)}, {"axis": 0}),
    "determinant": ("Det", 22, {"x": floats(3, 4, 4)}, {}),
    "determinant of a number": ("Det", 22, {"x": floats(3, 1, 1)}, {}),
    "fourier transform": ("DFT", 21, {"x": floats(1, 7, 2), "length": np.array(9), **PLACE}, {}),
    "frames": ("STFT", 21, {"x": floats(1, 20, 1), "step": np.array(3), "window": floats(6)}, {}),
    "n-grams": (
        "TfIdfVectorizer",
        21,
        {"x": RANDOM.integers(0, 3, (2, 9))},
        {
            "pool_int64s": [1, 2, 0, 1, 2, 2],
            "ngram_counts": [0, 2],
            "ngram_indexes": [3, 0, 2, 1],
            "max_gram_length": 2,
            "min_gram_length": 1,
            "max_skip_count": 1,
            "mode": "TF",
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rewriting_matches_the_operator(conformance: Conformance, case: str) -> None:
    op, opset, operands, attributes = CASES[case]
    feeds = {name: array for name, array in operands.items() if name not in PLACE}
    constants = [numpy_helper.from_array(operands[name], name) for name in PLACE if name in operands]
    outputs = ["y", "first"] if op == "Unique" else ["y"]
    nodes = [helper.make_node(op, list(operands), outputs, "node", **attributes)]
    model = model_of(nodes, feeds, constants, opset=opset)
    expected = run_onnx(model, feeds)
    decomposed = model.clone()
    others = {schema.name for schema in onnx.defs.get_all_schemas()} - {op}
    assert decompose(decomposed, others) == [op]
    answers = [run_onnx(decomposed, feeds), *conformance.convert_and_run(model, [feeds])]
    for answer in answers:
        for name, value in expected.items():
            assert not difference(value, answer[name], atol=1e-5)


@pytest.mark.parametrize("dims", [("N", "M", 3), ("N", 3, "M")])
def test_a_determinant_is_unrolled_by_the_size_that_is_known(dims: tuple[str | int, ...]) -> None:
    feeds = {"x": floats(2, 3, 3)}
    model = model_of([helper.make_node("Det", ["x"], ["y"])], feeds, open_dims={"x": dims}, opset=22)
    decomposed = model.clone()
    assert decompose(decomposed, {schema.name for schema in onnx.defs.get_all_schemas()} - {"Det"}) == ["Det"]
    assert not difference(run_onnx(model, feeds)["y"], run_onnx(decomposed, feeds)["y"], atol=1e-5)


def test_batch_normalization_in_training_updates_its_statistics(conformance: Conformance) -> None:
    feeds = {
        "x": floats(3, 2, 4),
        **{name: np.abs(floats(2)) for name in ("scale", "bias", "mean", "variance")},
    }
    nodes = [
        helper.make_node(
            "BatchNormalization", list(feeds), ["y", "m", "v"], training_mode=1, momentum=0.7, epsilon=1e-2
        )
    ]
    model = model_of(nodes, feeds)
    (answer,) = conformance.convert_and_run(model, [feeds])
    for name, value in run_onnx(model, feeds).items():
        assert not difference(value, answer[name], atol=1e-5)

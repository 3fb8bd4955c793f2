"""A float16 package computes in float32 what float16 does not hold, and says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxport.converters.coreml.compiler import CoremlConverter
from onnxport.converters.params import CoremlParams
from onnxport.converters.result import Compiled
from onnxport.formats.model import Model
from onnxport.optimizers.canonical_form import prepare
from tests.conformance.harness import MANIFEST, Array
from tests.converters.coreml.packages import convert, evaluate, spec_of
from tests.converters.tflite.models import model_of, run_onnx

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)


def through_processes(model: Model, output: Path, precision: Any, samples: Any = ()) -> Compiled:
    params = CoremlParams(precision=precision)
    with CoremlConverter() as converter:
        prepared = prepare(model, shapes={}, native=converter.native_ops).model
        notes = converter.lower(prepared, output.parent, params, MANIFEST, samples)
        compiled = converter.write(output, params)
    return replace(compiled, notes=(*notes, *compiled.notes))


def islands(package: Path) -> set[str]:
    return set(json.loads(spec_of(package).description.metadata.userDefined["onnxport"])["islands"])


def types_of(package: Path) -> dict[str, int]:
    """Name of each result to its type: 10 is float16, 11 is float32."""
    (function,) = spec_of(package).mlProgram.functions.values()
    (block,) = function.block_specializations.values()
    return {o.name: o.type.tensorType.dataType for each in block.operations for o in each.outputs}


def constant(name: str, number: float) -> Any:
    return numpy_helper.from_array(np.array(number, np.float32), name)


def overflowing() -> Model:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "large"], ["m"]),
        helper.make_node("Mul", ["m", "small"], ["back"]),
        helper.make_node("Tanh", ["back"], ["y"]),
    ]
    return model_of(nodes, {"x": X}, [constant("large", 3e5), constant("small", 3e-6)])


def test_what_overflows_on_the_samples_is_a_float32_island(tmp_path: Path) -> None:
    model, package = overflowing(), tmp_path / "m.mlpackage"
    compiled = through_processes(model, package, "fp16")
    assert islands(package) == {"m", "back"}
    assert "computed in float32: 2 of 4 nodes, Mul 'm', Mul 'back'" in compiled.notes
    found = evaluate(package, {"x": X})["y"]
    np.testing.assert_allclose(found, run_onnx(model, {"x": X})["y"], rtol=4e-3, atol=1e-3)
    types = types_of(package)
    assert types["s"] == 10
    assert types["m"] == types["back"] == 11


def test_float32_has_no_islands(tmp_path: Path) -> None:
    compiled = through_processes(overflowing(), tmp_path / "m.mlpackage", "fp32")
    assert not islands(tmp_path / "m.mlpackage")
    assert not compiled.notes


def test_the_users_samples_decide(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["m"]), helper.make_node("Sigmoid", ["m"], ["y"])]
    model, package = model_of(nodes, {"x": X}), tmp_path / "m.mlpackage"
    convert(model, package, precision="fp16", samples=[{"x": X}])
    assert not islands(package)
    convert(model, tmp_path / "n.mlpackage", precision="fp16", samples=[{"x": X * 200}])
    assert islands(tmp_path / "n.mlpackage") == {"m", "y"}


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6])
def test_an_epsilon_that_float16_does_not_hold_keeps_its_sum_in_float32(
    tmp_path: Path, epsilon: float
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Add", ["r", "e"], ["a"]),
        helper.make_node("Div", ["r", "a"], ["y"]),
    ]
    model, package = model_of(nodes, {"x": X * 1e-2}, [constant("e", epsilon)]), tmp_path / "m.mlpackage"
    convert(model, package, precision="fp16", samples=[{"x": X}])
    assert islands(package) == {"a", "y"}
    feeds: dict[str, Array] = {"x": X * 1e-3}
    np.testing.assert_allclose(
        evaluate(package, feeds)["y"], run_onnx(model, feeds)["y"], rtol=4e-3, atol=1e-3
    )


def test_a_small_bias_that_keeps_nothing_finite_is_no_island(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Add", ["r", "e"], ["a"]),
        helper.make_node("Tanh", ["a"], ["y"]),
    ]
    model, package = model_of(nodes, {"x": X}, [constant("e", 3e-5)]), tmp_path / "m.mlpackage"
    convert(model, package, precision="fp16", samples=[{"x": X}])
    assert not islands(package)
    np.testing.assert_allclose(
        evaluate(package, {"x": X})["y"], run_onnx(model, {"x": X})["y"], rtol=2e-3, atol=6e-5
    )
    other = tmp_path / "n.mlpackage"  # where it is no longer small beside what it moves
    convert(model, other, precision="fp16", samples=[{"x": X * 1e-3}])
    assert islands(other) == {"a"}


def test_positions_beyond_2048_stay_whole(tmp_path: Path) -> None:
    ids = np.array([[1, 2047, 3001]], np.int32)
    nodes = [
        helper.make_node("Cast", ["ids"], ["f"], to=1),
        helper.make_node("Mul", ["f", "two"], ["y"]),
    ]
    model, package = model_of(nodes, {"ids": ids}, [constant("two", 2.0)]), tmp_path / "m.mlpackage"
    convert(model, package, precision="fp16", samples=[{"ids": ids}])
    assert islands(package) == {"f", "y"}
    np.testing.assert_array_equal(evaluate(package, {"ids": ids})["y"], [[2.0, 4094.0, 6002.0]])


def test_mixed_keeps_powers_and_norms_in_float32(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Exp", ["r"], ["y"])]
    for precision, expected in (("fp16", set()), ("mixed", {"y"})):
        package = tmp_path / f"{precision}.mlpackage"
        through_processes(model_of(nodes, {"x": X}), package, precision, [{"x": X}])
        assert islands(package) == expected
        assert types_of(package)["r"] == 10


def test_a_model_that_no_sample_runs_on_is_converted_all_the_same(tmp_path: Path) -> None:
    bad = {"x": np.zeros((5, 5), np.float32)}
    compiled = through_processes(overflowing(), tmp_path / "m.mlpackage", "fp16", [bad])
    assert compiled.notes[0].startswith("no values were measured before the conversion to float16: ")

"""Inputs and outputs as a package carries them: types, ranks and names that Core ML lacks, and no value lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxport.converters.coreml.names import Keys
from onnxport.core.errors import CannotConvertError, UsageError
from onnxport.runtimes.mlprogram import MilRuntime
from tests.conformance.harness import Array, difference
from tests.converters.coreml.packages import convert, spec_of
from tests.converters.tflite.models import model_of, run_onnx

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def carried(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    feeds: dict[str, Array],
    outputs: Sequence[str] = (),
    constants: Sequence[onnx.TensorProto] = (),
    **params: Any,
) -> Any:
    """The spec of the package of `nodes`, whose answers are ONNX Runtime's."""
    model, package = model_of(nodes, feeds, constants, outputs=outputs), folder / "m.mlpackage"
    convert(model, package, **params)
    with MilRuntime(package) as runtime:
        answers = runtime.run(feeds)
    for name, expected in run_onnx(model, feeds).items():
        assert not difference(expected, answers[name]), name
    return spec_of(package).description


def names(features: Any) -> list[str]:
    return [feature.name for feature in features]


@pytest.mark.parametrize(
    "dtype", "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
)
def test_every_element_type_comes_in_and_goes_out(tmp_path: Path, dtype: str) -> None:
    limits = np.array([0, 1, 100] if dtype[0] in "ub" else [-100, 0, 1])
    feeds = {"x": limits.astype(dtype).reshape(1, 3)}
    described = carried(tmp_path, [node("Transpose", "x", "y", perm=[1, 0])], feeds)
    kind = described.output[0].type.multiArrayType
    name = kind.ArrayDataType.Name(kind.dataType)
    wanted = {"float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT32"}
    assert name == wanted.get(dtype, "INT32")


def test_a_number_beyond_32_bits_is_refused_when_fed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2147483647"):
        carried(tmp_path, [node("Identity", "x", "y")], {"x": np.array([2**31])})


def test_scalars_come_in_and_go_out_as_scalars(tmp_path: Path) -> None:
    nodes = [node("Sqrt", "x", "y"), node("Shape", "v", "n"), node("Squeeze", "n", "z")]
    described = carried(tmp_path, nodes, {"x": np.array(4, np.float32), "v": X[0]}, ["y", "z"])
    assert list(described.input[0].type.multiArrayType.shape) == [1]


def test_an_input_that_is_an_output_keeps_both_names(tmp_path: Path) -> None:
    described = carried(tmp_path, [node("Identity", "x", "y")], {"x": X})
    assert (names(described.input), names(described.output)) == (["x"], ["y"])


def test_one_value_may_be_several_outputs(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Identity", "a", "b"),
        node("Identity", "a", "c"),
        node("Identity", "x", "d"),
        node("Identity", "x", "e"),
    ]
    described = carried(tmp_path, nodes, {"x": X}, ["b", "c", "a", "d", "e"])
    assert names(described.output) == ["b", "c", "a", "d", "e"]


def test_an_output_may_be_read_inside(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("Sigmoid", "a", "b"), node("Concat", "a b", "y", axis=0)]
    described = carried(tmp_path, nodes, {"x": X}, ["a", "y", "b"])
    assert names(described.output) == ["a", "y", "b"]


def test_the_second_of_several_results_may_be_the_only_output(tmp_path: Path) -> None:
    sizes = numpy_helper.from_array(np.array([1, 2]), "sizes")
    nodes = [node("Split", "x sizes", "a b", axis=1)]
    assert names(carried(tmp_path, nodes, {"x": X}, ["b"], [sizes]).output) == ["b"]


def test_a_result_may_be_a_constant(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "y"), node("Shape", "x", "n"), node("Identity", "c", "k")]
    constant = numpy_helper.from_array(np.array([[True, False]]), "c")
    described = carried(tmp_path, nodes, {"x": X}, ["y", "n", "k"], [constant])
    assert names(described.output) == ["y", "n", "k"]


def test_an_input_that_nothing_reads_stays_one(tmp_path: Path) -> None:
    described = carried(tmp_path, [node("Relu", "x", "y")], {"x": X, "idle": X})
    assert names(described.input) == ["x", "idle"]


def test_names_that_core_ml_does_not_carry_become_others_that_do_not_collide(tmp_path: Path) -> None:
    inputs = ["a/b", "a_b", "a.b", "0", "func", "größe", "x:0", "state"]
    nodes = [node("Concat", " ".join(inputs), "sum/y:0", axis=0), node("Relu", "sum/y:0", "sum_y_0")]
    feeds = {name: X + i for i, name in enumerate(inputs)}
    described = carried(tmp_path, nodes, feeds, ["sum/y:0", "sum_y_0"])
    keys = names(described.input) + names(described.output)
    assert len(set(keys)) == len(keys) == 10
    assert all(key.isascii() and key.isidentifier() for key in keys)


def test_names_that_core_ml_carries_stay() -> None:
    keys = Keys()
    assert [keys.key(name) for name in ("x", "input_1", "X")] == ["x", "input_1", "X"]


@pytest.mark.parametrize(
    ("shape", "why"),
    [((0, 3), "dimension of size 0"), ((1,) * 6, "6 dimensions"), ((2, 3, 1, 1, 1, 1), "6 dim")],
)
def test_ports_of_other_shapes_are_refused(tmp_path: Path, shape: tuple[int, ...], why: str) -> None:
    feeds = {"x": np.zeros(shape, np.float32)}
    with pytest.raises(CannotConvertError, match=why):
        convert(model_of([node("Relu", "x", "y")], feeds), tmp_path / "m.mlpackage")


def test_float16_ports_are_float32_where_ios_15_is_the_target(tmp_path: Path) -> None:
    nodes, feeds = [node("Relu", "x", "y")], {"x": X.astype(np.float16)}
    described = carried(tmp_path, nodes, feeds, minimum_target="iOS15")
    kind = described.input[0].type.multiArrayType
    assert kind.ArrayDataType.Name(kind.dataType) == "FLOAT32"

"""What is searched of a model's bytes: all of its names, and not the numbers of its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxport.formats.external_data import locations
from onnxport.formats.onnx_bytes import spans_without_numbers
from onnxport.formats.zipmap import without_zipmaps
from onnxport.runtimes.ort.integer_products import holds_integer_products

_NUMBERS = 2**18  # 1 MB of float32
_HIDDEN = b"QLinearConv ZipMap"


def _weight(name: str, *, raw: bool) -> TensorProto:
    """Make a weight that holds the names of operators by chance."""
    data = np.frombuffer(_HIDDEN * (4 * _NUMBERS // len(_HIDDEN) + 4), np.float32)[:_NUMBERS]
    if raw:
        return numpy_helper.from_array(data, name)
    return helper.make_tensor(name, TensorProto.FLOAT, [_NUMBERS], np.arange(_NUMBERS, dtype=np.float32))


def _model(*nodes: onnx.NodeProto, raw: bool = True) -> onnx.ModelProto:
    """Make a network whose nodes stand behind its weights and before others in the file."""
    shape = [_NUMBERS]
    first = helper.make_node("Constant", [], ["c"], value=_weight("", raw=raw))
    graph = helper.make_graph(
        [
            first,
            helper.make_node("Add", ["x", "c"], ["a"]),
            helper.make_node("Add", ["a", "w"], ["y"]),
            *nodes,
        ],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [_weight("w", raw=raw)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _searched(data: bytes) -> bytes:
    return b"|".join(data[start:end] for start, end in spans_without_numbers(data))


@pytest.mark.parametrize("raw", [True, False])
def test_weights_of_initializers_and_constants_are_left_out(raw: bool) -> None:
    data = _model(raw=raw).SerializeToString()
    assert len(data) > 2 * 4 * _NUMBERS
    assert len(_searched(data)) < 1000


def test_operators_are_found_behind_weights_and_in_branches() -> None:
    branch = helper.make_graph(
        [helper.make_node("QLinearMatMul", list("abcdefgh"), ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.UINT8, None)],
        [_weight("v", raw=True)],
    )
    condition = helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch)
    data = _model(condition).SerializeToString()
    assert b"QLinearMatMul" in _searched(data)
    assert holds_integer_products(data)


def test_bytes_of_weights_are_no_operators(tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(_model(), path)
    assert _HIDDEN in path.read_bytes()
    assert not holds_integer_products(path)
    assert without_zipmaps(path) is None


def test_integer_products_and_zipmaps_of_large_models_are_found(tmp_path: Path) -> None:
    product = helper.make_node("MatMulIntegerToFloat", list("abcd"), ["p"], domain="com.microsoft")
    onnx.save(_model(product), tmp_path / "integers.onnx")
    assert holds_integer_products(tmp_path / "integers.onnx")
    classes = helper.make_node("ZipMap", ["y"], ["p"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    model = _model(classes)
    model.graph.output.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "classes.onnx")
    assert without_zipmaps(tmp_path / "classes.onnx") is not None


def test_data_files_of_a_model_with_weights_of_its_own_are_found() -> None:
    model = _model()
    outside = TensorProto(name="o", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="weights.bin")
    model.graph.initializer.append(outside)
    assert locations(model.SerializeToString()) == {"weights.bin"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: data + b"\xff",
        lambda data: b"\x80" * 2**21,
        lambda data: data[:4] + b"ORTM" + data[8:],
        lambda data: data[: 2**20 - 1],
    ],
    ids=["truncated", "continued", "no end", "ORT format", "small"],
)
def test_what_is_no_large_onnx_model_is_searched_whole(spoil) -> None:  # type: ignore[no-untyped-def]
    data = spoil(_model().SerializeToString())
    assert spans_without_numbers(data) == [(0, len(data))]

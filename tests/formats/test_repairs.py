"""Files that say something wrong of themselves answer as the right ones do, and each repair is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.bench.loaders.ort import load
from onnxport.core.errors import InputError
from onnxport.formats.model import Model
from onnxport.inspection import inspect_model
from onnxport.runtimes.ort.runtime import OrtRuntime

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
Damage = Callable[[onnx.ModelProto], None]


def of_values(change: Callable[[onnx.ValueInfoProto], None]) -> Damage:
    """Return the damage that changes what a file says of its inner values."""

    def damage(proto: onnx.ModelProto) -> None:
        proto.graph.value_info.extend(onnx.shape_inference.infer_shapes(proto).graph.value_info)
        for value in proto.graph.value_info:
            change(value)

    return damage


def other_sizes(value: onnx.ValueInfoProto) -> None:
    for dim in value.type.tensor_type.shape.dim:
        dim.dim_value = 7


def other_rank(value: onnx.ValueInfoProto) -> None:
    value.type.tensor_type.shape.dim.add().dim_value = 3


def other_type(value: onnx.ValueInfoProto) -> None:
    value.type.tensor_type.elem_type = TensorProto.INT64


def one_name(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        node.name = "node"


def weight_twice(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(proto.graph.initializer[0])


def metadata_twice(proto: onnx.ModelProto) -> None:
    for value in ("1", "2"):
        entry = proto.metadata_props.add()
        entry.key, entry.value = "author", value


def untyped_output(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].ClearField("type")


def reversed_nodes(proto: onnx.ModelProto) -> None:
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def ir_version(number: int) -> Damage:
    return lambda proto: setattr(proto, "ir_version", number)


def one_block(proto: onnx.ModelProto) -> None:
    """A bias whose only block has all of it, as OpenCV's tools write it; ONNX Runtime takes no block of one scale."""
    proto.opset_import[0].version, proto.ir_version = 21, 10
    bias = next(each for each in proto.graph.initializer if each.name.endswith(".bias"))
    numbers = numpy_helper.to_array(bias)
    scale = np.abs(numbers).max() / np.float32(32767)
    stored = np.round(numbers / scale).astype(np.int16)
    name = bias.name
    proto.graph.initializer.extend(
        [numpy_helper.from_array(stored, "stored"), numpy_helper.from_array(np.array([scale]), "scale")]
    )
    proto.graph.initializer.remove(bias)
    node = helper.make_node(
        "DequantizeLinear", ["stored", "scale"], [name], axis=0, block_size=len(numbers), name="bias"
    )
    proto.graph.node.insert(0, node)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "stale sizes": (of_values(other_sizes), "wrong shape or type of 8 values"),
    "stale ranks": (of_values(other_rank), "wrong shape or type of 8 values"),
    "stale types": (of_values(other_type), "wrong shape or type of 8 values"),
    "stale output": (lambda proto: other_sizes(proto.graph.output[0]), r"shape \[7,7\] of output 'logits'"),
    "stale rank of output": (lambda proto: other_rank(proto.graph.output[0]), "of output 'logits'"),
    "untyped output": (untyped_output, "output 'logits' has no type"),
    "input without a shape": (
        lambda proto: proto.graph.input[0].type.tensor_type.ClearField("shape"),
        "input 'image' has no shape in the file; its rank is 4, as Conv demands",
    ),
    "one name": (one_name, "nodes have one name, 'node'"),
    "no name": (lambda proto: proto.graph.ClearField("name"), "the graph has no name"),
    "a weight twice": (weight_twice, "1 weights are there twice, '0.weight'"),
    "metadata twice": (metadata_twice, "metadata 'author' is there more than once"),
    "one block": (one_block, "1 nodes have a block size and one scale, 'bias' among them"),
    "unsorted": (reversed_nodes, "they were sorted"),
    "IR version 14": (ir_version(14), "says IR version 14"),
    "IR version 99": (ir_version(99), "says IR version 99"),
    "IR version 1": (ir_version(1), "says IR version 1,"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_says_something_wrong_answers_as_the_right_one(damage: str, tmp_path: Path) -> None:
    apply, told = DAMAGES[damage]
    proto = onnx.load(DIGITS)
    apply(proto)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    feeds = {"image": np.random.default_rng(1).random((2, 1, 8, 8), dtype=np.float32)}
    right = onnxruntime.InferenceSession(DIGITS).run(None, feeds)[0]
    model = Model.load(path)
    assert len(model.mended) == 1
    assert re.search(told, model.mended[0])
    assert model.outputs[0].shape[1] == 10
    with OrtRuntime.of_model(model) as runtime:
        np.testing.assert_allclose(runtime.run(feeds)["logits"], right, rtol=1e-4, atol=1e-4)
    with OrtRuntime(path) as runtime:
        np.testing.assert_allclose(runtime.run(feeds)["logits"], right, rtol=1e-4, atol=1e-4)


def test_a_right_file_is_not_mended() -> None:
    assert Model.load(DIGITS).mended == ()


def test_weights_of_a_mended_file_lie_in_their_own_file(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    one_name(proto)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    feeds = {"image": np.random.default_rng(1).random((2, 1, 8, 8), dtype=np.float32)}
    right = onnxruntime.InferenceSession(DIGITS).run(None, feeds)[0]
    assert Model.load(path).mended
    with OrtRuntime(path) as runtime:
        np.testing.assert_allclose(runtime.run(feeds)["logits"], right, rtol=1e-4, atol=1e-4)


def test_two_weights_of_one_name_are_refused(tmp_path: Path) -> None:
    """Of these, ONNX Runtime takes the first or the last, by their size."""
    proto = onnx.load(DIGITS)
    first = proto.graph.initializer[0]
    other = np.zeros_like(numpy_helper.to_array(first))
    proto.graph.initializer.append(numpy_helper.from_array(other, first.name))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    with pytest.raises(InputError, match="not unique"):
        Model.load(path)


def test_what_is_wrong_beside_a_repair_is_refused(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    one_name(proto)
    proto.graph.node[2].op_type = "Rellu"
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    with pytest.raises(InputError, match="No Op registered for Rellu"):
        Model.load(path)


def test_a_file_without_an_ir_version_is_told_so(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    proto.ClearField("ir_version")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="no IR version"):
        Model.load(path)


def test_a_type_that_no_runtime_takes_is_exit_4_for_each_target(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    with pytest.raises(InputError, match=r"tensor\(double\)"):
        onnxport.convert_model(path, to="ort", output=tmp_path / "model.ort")


def test_a_conversion_tells_what_was_mended(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    of_values(other_sizes)(proto)
    proto.ir_version = 14
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    made = onnxport.convert_model(path, to="ort", output=tmp_path / "model.ort")
    assert made.report.verdict == "proven"
    assert sum("the file says" in note for note in made.run.artifacts[0].notes) == 2


def test_bench_times_a_mended_file(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    one_name(proto)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    model = load(str(path), {})
    model.feed({"image": np.zeros((1, 1, 8, 8), np.float32)})()
    assert model.answers()["logits"].shape == (1, 10)


def test_inspect_tells_what_a_file_says_wrongly(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    proto.ir_version = 14
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    assert any("says IR version 14" in note for note in inspect_model(path).unusual)

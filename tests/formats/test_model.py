"""Loading refuses what must not be trusted, and changes nothing of what it accepts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import graphs
from onnxport.core.errors import CannotConvertError, InputError
from onnxport.formats import model as model_module
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model


def saved(model: onnx.ModelProto, tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def test_the_signature_is_the_files(tmp_path: Path) -> None:
    model = Model.load(saved(graphs.conv_relu(), tmp_path))
    assert model.inputs == (TensorSpec("x", "float32", ("N", 3, 8, 10)),)
    assert model.outputs == (TensorSpec("y", "float32", ("N", 4, 8, 10)),)
    assert model.opset == graphs.OPSET


def test_initializers_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    proto = graphs.mlp()
    weights = [
        onnx.helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in proto.graph.initializer
    ]
    proto.graph.input.extend(weights)
    assert [spec.name for spec in Model.load(saved(proto, tmp_path)).inputs] == ["x"]


def test_a_dimension_of_minus_one_is_open(tmp_path: Path) -> None:
    proto = graphs.mlp()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert Model.load(saved(proto, tmp_path)).inputs[0].shape == (None, 6)


@pytest.mark.parametrize("content", [b"not a protobuf at all", b"\x08\x07\x12", bytes(100)])
def test_what_is_no_onnx_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.onnx (is not|cannot)"):
        Model.load(path)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9])
def test_a_truncated_model_is_refused(tmp_path: Path, kept: float) -> None:
    path = saved(graphs.conv_relu(), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(InputError):
        Model.load(path)


def test_a_graph_that_the_checker_rejects_is_refused_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the ONNX checker says: .*nowhere"):
        Model.load(saved(graphs.checker_rejects(), tmp_path))


def test_external_data_is_part_of_the_artefact(tmp_path: Path) -> None:
    model = Model.load(graphs.external_data(tmp_path))
    assert [path.name for path in model.artifact.companions] == ["model.onnx.data"]
    assert model.artifact.size > model.artifact.path.stat().st_size


def test_missing_external_data_is_refused_by_name(tmp_path: Path) -> None:
    path = graphs.external_data(tmp_path)
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(InputError, match=r"'model.onnx.data', which does not exist"):
        Model.load(path)


def test_truncated_external_data_is_refused(tmp_path: Path) -> None:
    path = graphs.external_data(tmp_path)
    data = tmp_path / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:10])
    with pytest.raises(InputError, match="too short"):
        Model.load(path)


def test_external_data_outside_the_folder_is_never_read(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    with pytest.raises(InputError, match="outside the model's folder"):
        Model.load(graphs.external_data_outside(folder))


def test_external_data_behind_a_link_to_the_outside_is_never_read(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    path = graphs.external_data(folder)
    data = folder / "model.onnx.data"
    data.rename(tmp_path / "elsewhere.data")
    data.symlink_to(tmp_path / "elsewhere.data")
    with pytest.raises(InputError, match="outside the model's folder"):
        Model.load(path)


def test_a_saved_copy_answers_as_the_original(tmp_path: Path) -> None:
    original = graphs.external_data(tmp_path)
    copy = Model.load(original).clone().save(tmp_path / "copy.onnx").path
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    answers = [
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for path in (original, copy)
    ]
    np.testing.assert_array_equal(*answers)


def test_the_checkers_words_name_the_node_and_come_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"'nowhere' of node: 'add' \(Add\) is not output of any.*; let every node"
    ):
        Model.load(saved(graphs.checker_rejects(), tmp_path))


def test_a_value_that_two_nodes_make_is_refused_by_name(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    proto.graph.node.append(proto.graph.node[0])
    with pytest.raises(InputError, match=r"'y' has been used as output names multiple times"):
        Model.load(saved(proto, tmp_path))


def test_a_model_without_outputs_is_refused(tmp_path: Path) -> None:
    proto = graphs.mlp()
    del proto.graph.output[:]
    with pytest.raises(InputError, match=r"model\.onnx has no outputs"):
        Model.load(saved(proto, tmp_path))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x1c\0\0\0TFL3" + bytes(50), "a TFLite model; give it the extension .tflite"),
        (b"\x20\0\0\0ORTM" + bytes(50), "a model in ONNX Runtime format; give it the extension .ort"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "a web page"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"is not an ONNX model: it is {kind}"):
        Model.load(path)


def with_external_weight(folder: Path, **entries: str) -> Path:
    """A model whose first weight lies in a file `w.bin` beside it, or where `entries` say."""
    proto = graphs.mlp()
    weight = proto.graph.initializer[0]
    (folder / "w.bin").write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in ({"location": "w.bin"} | entries).items():
        weight.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("offset", ["-5", "abc"])
def test_an_offset_that_is_no_number_of_bytes_is_refused(tmp_path: Path, offset: str) -> None:
    with pytest.raises(InputError, match=f"weight 'w1' of .* has the offset '{offset}'"):
        Model.load(with_external_weight(tmp_path, offset=offset, length="99"))


@pytest.mark.parametrize(
    ("location", "said"), [("", "lies in a file without a name"), (".", "lies in '.', which is a folder")]
)
def test_a_location_that_names_no_file_is_refused(tmp_path: Path, location: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Model.load(with_external_weight(tmp_path, location=location))


def test_an_absolute_location_in_the_models_own_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"an absolute path: .*; save the model with a path relative"):
        Model.load(with_external_weight(tmp_path, location=str((tmp_path / "w.bin").resolve())))


def test_external_data_that_git_lfs_did_not_fetch_is_called_so(tmp_path: Path) -> None:
    path = with_external_weight(tmp_path)
    (tmp_path / "w.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InputError, match=r"too short: the file is a Git LFS pointer.*git lfs pull"):
        Model.load(path)


def test_nodes_in_any_order_and_free_initializers_of_old_files_are_taken(tmp_path: Path) -> None:
    """ONNX Runtime takes both, and its quantizer writes both."""
    proto = graphs.conv_relu()
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    proto.ir_version = 3
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(str(tmp_path / "m.onnx"))
    assert [node.op_type for node in Model.load(tmp_path / "m.onnx").graph] == [n.op_type for n in nodes]


def test_a_value_that_nothing_gives_is_refused_in_any_order(tmp_path: Path) -> None:
    text = '<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Add (x, nowhere) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"not a valid ONNX model: .*'nowhere'.*let every node read inputs"):
        Model.load(tmp_path / "m.onnx")


def test_nodes_in_a_circle_are_refused(tmp_path: Path) -> None:
    text = (
        '<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] b) '
        "{ a = Add (x, b) b = Neg (a) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="cycle"):
        Model.load(tmp_path / "m.onnx")


def test_a_model_is_handed_over_without_a_copy_of_weights_that_lie_in_files(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    path = graphs.external_data(tmp_path / "theirs")
    model = Model.load(path)
    held = np.arange(600, dtype=np.float32)
    tensor = onnx_ir.Tensor(held, name="held")
    value = onnx_ir.Value(
        name="held", shape=tensor.shape, type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
    )
    model.graph.register_initializer(value)
    model.hand_over(tmp_path / "handed.onnx")
    assert (tmp_path / "handed.onnx.data").stat().st_size == held.nbytes, "of the others nothing is copied"
    received = Model.received(tmp_path / "handed.onnx")
    assert set(received.graph.initializers) == set(model.graph.initializers)
    for name, original in model.graph.initializers.items():
        found = received.graph.initializers[name].const_value
        assert found is not None
        assert original.const_value is not None
        assert np.array_equal(found.numpy(), original.const_value.numpy())
    assert str(tmp_path) not in (model.to_bytes() or b"").decode(errors="replace"), (
        "the original is untouched"
    )


def test_a_model_that_changed_is_handed_over_again_to_the_same_file(tmp_path: Path) -> None:
    """Weights that did not change lie in the file of the first time, which stays."""
    old, new = (np.full((20, 20), number, np.float32) for number in (1, 2))
    graph = onnx.parser.parse_graph(
        "g (float[1,20] x) => (float[1,20] y) { a = MatMul (x, v) y = MatMul (a, w) }"
    )
    graph.initializer.extend(numpy_helper.from_array(old, name) for name in "vw")
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model, path = Model.load(saved(proto, tmp_path)), tmp_path / "handed.onnx"
    model.hand_over(path)
    model.graph.initializers["v"].const_value = onnx_ir.tensor(new, name="v")
    model.hand_over(path)
    for found in (model, Model.received(path)):
        weights = [found.graph.initializers[name].const_value for name in "vw"]
        assert [each.numpy()[0, 0] for each in weights if each is not None] == [2, 1]


def test_a_dictionary_is_refused_with_the_way_out(tmp_path: Path) -> None:
    dictionary = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    )
    graph = helper.make_graph(
        [helper.make_node("CastMap", ["x"], ["z"], domain="ai.onnx.ml")],
        "g",
        [helper.make_value_info("x", dictionary)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, None])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "model.onnx")
    with pytest.raises(CannotConvertError, match="CastMap"):
        Model.load(tmp_path / "model.onnx")


@pytest.mark.parametrize(("op", "opset"), [("LayerNormalization", 12), ("SimplifiedLayerNormalization", 17)])
def test_what_onnx_runtime_writes_into_onnx_s_own_domain_is_loaded(
    op: str, opset: int, tmp_path: Path
) -> None:
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "scale"], ["y"], axis=-1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "scale")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    assert Model.load(tmp_path / "model.onnx").graph[0].op_type == op


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if any weight took more than the limit."""
    monkeypatch.setattr(model_module, "_APART", 0)


def scattered(folder: Path) -> Path:
    """y = x w + b c, with w and b each in a file of its own, and c in a Constant node, in a third."""
    names = {"w": (4, 300), "b": (300,), "c": (300,)}
    random = np.random.default_rng(0)
    held = {
        name: numpy_helper.from_array(random.random(shape, np.float32), name) for name, shape in names.items()
    }
    nodes = [
        helper.make_node("Constant", [], ["c"], value=held["c"]),
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Mul", ["b", "c"], ["shift"]),
        helper.make_node("Add", ["product", "shift"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, ["N", 4]), ("y", 1, ["N", 300]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [held["w"], held["b"]])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "parts").mkdir(parents=True)
    for tensor in (*proto.graph.initializer, proto.graph.node[0].attribute[0].t):
        onnx.external_data_helper.set_external_data(tensor, f"parts/{tensor.name}.bin")
        (folder / "parts" / f"{tensor.name}.bin").write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


def answer(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.ones((2, 4), np.float32)})
    return np.asarray(y)


@pytest.mark.usefixtures("large")
def test_large_weights_in_several_files_are_saved_in_one_beside_the_model(tmp_path: Path) -> None:
    source = scattered(tmp_path / "theirs")
    before = {file: file.read_bytes() for file in (tmp_path / "theirs").rglob("*") if file.is_file()}
    (tmp_path / "ours").mkdir()
    saved = Model.load(source).save(tmp_path / "ours" / "out.onnx")
    assert [file.name for file in saved.files] == ["out.onnx", "out.onnx.data"]
    np.testing.assert_array_equal(answer(saved.path), answer(source))
    assert {file: file.read_bytes() for file in before} == before
    assert Model.load(saved.path).artifact.files == saved.files


def test_small_weights_in_several_files_are_saved_inside_the_model(tmp_path: Path) -> None:
    source = scattered(tmp_path / "theirs")
    saved = Model.load(source).save(tmp_path / "out.onnx")
    assert saved.companions == ()
    assert Model.load(saved.path).external_files == ()
    np.testing.assert_array_equal(answer(saved.path), answer(source))


@pytest.mark.usefixtures("large")
def test_a_renamed_model_finds_its_weights_under_their_new_name(tmp_path: Path) -> None:
    source = scattered(tmp_path / "theirs")
    saved = Model.load(source).save(tmp_path / "out.onnx")
    renamed = model_module.rename(saved, "out.rejected.onnx")
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == [
        "out.rejected.onnx",
        "out.rejected.onnx.data",
    ]
    assert Model.load(renamed.path).artifact == renamed
    np.testing.assert_array_equal(answer(renamed.path), answer(source))


def test_weights_with_a_second_name_are_refused(tmp_path: Path) -> None:
    path = graphs.external_data(tmp_path)
    os.link(tmp_path / "model.onnx.data", tmp_path / "other")
    with pytest.raises(InputError, match=r"a second name elsewhere \(a hard link\).*copy the model"):
        Model.load(path)


@pytest.mark.parametrize("in_node", [False, True])
def test_the_bytes_of_a_model_hold_its_external_weights_and_leave_it_as_it_is(
    tmp_path: Path, in_node: bool
) -> None:
    """The bytes are those of the model whose weights were never apart."""
    proto = graphs.conv_relu()
    if in_node:
        stored = numpy_helper.from_array(np.arange(300, dtype=np.float32), "stored")
        proto.graph.node.append(helper.make_node("Constant", [], ["c"], value=stored))
    whole = Model.load(saved(proto, tmp_path)).to_bytes()
    apart = tmp_path / "apart"
    apart.mkdir()
    onnx.save(
        proto,
        apart / "model.onnx",
        save_as_external_data=True,
        location="data",
        size_threshold=0,
        convert_attribute=in_node,
    )
    model = Model.load(apart / "model.onnx")
    files = model.external_files
    assert len(files) == 1
    assert model.to_bytes() == whole == model.to_bytes()
    assert model.external_files == files

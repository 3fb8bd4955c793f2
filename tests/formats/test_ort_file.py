"""Reading and writing `.ort` files: nothing lost, nothing that depends on the run."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from fixtures import graphs
from onnxport.formats import ort_file
from onnxport.formats.ort_file import _SCHEMA

SCHEMA_FOLDER = (
    Path(onnxruntime.__file__).parent / "tools" / "ort_format_model" / "ort_flatbuffers_py" / "fbs"
)


def save_as_ort(model: onnx.ModelProto, path: Path, *, runtime_optimizations: bool = False) -> bytes:
    """What ONNX Runtime itself writes."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    if runtime_optimizations:
        options.add_session_config_entry("optimization.minimal_build_optimizations", "save")
    onnxruntime.InferenceSession(model.SerializeToString(), options, disabled_optimizers=["NchwcTransformer"])
    return path.read_bytes()


def branches() -> onnx.ModelProto:
    """An If with a graph in each branch, a string attribute, a list of ints, a scalar and an empty tensor."""
    cond = helper.make_tensor_value_info("cond", TensorProto.BOOL, [])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["a"])], "then", [], [value("a")])
    flip = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
            helper.make_node("ReduceMax", ["t"], ["b"]),
        ],
        "else",
        [],
        [value("b")],
    )
    node = helper.make_node("If", ["cond"], ["y"], then_branch=then, else_branch=flip)
    return helper.make_model(
        helper.make_graph([node], "branches", [cond, x], [y]),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
    )


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


MODELS = {
    "convolution": graphs.conv_relu,
    "perceptron": graphs.mlp,
    "two open dims": graphs.dynamic_two_dims,
    "strings": graphs.string_split,
    "branches": branches,
}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    data = save_as_ort(MODELS[name](), tmp_path / "raw.ort")
    session = ort_file.read(data)
    assert ort_file.read(bytes(ort_file.write(session))) == session
    assert session["model"]["graph"]["nodes"]


@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_takes_what_is_written(name: str, tmp_path: Path) -> None:
    """It verifies the buffer on loading: offsets, alignment, lengths."""
    original = save_as_ort(MODELS[name](), tmp_path / "raw.ort")
    written = bytes(ort_file.write(ort_file.read(original)))
    expected, found = (onnxruntime.InferenceSession(data) for data in (original, written))
    for ours, theirs in zip(found.get_inputs(), expected.get_inputs(), strict=True):
        assert (ours.name, ours.type, ours.shape) == (theirs.name, theirs.type, theirs.shape)


@pytest.mark.parametrize("name", ["convolution", "perceptron", "two open dims"])
def test_weights_lie_where_they_can_be_used_in_place(name: str, tmp_path: Path) -> None:
    """An app may map the file and have ONNX Runtime read floats from it, which 4 bytes of alignment allow.

    Not tried with a session: the Python binding frees the bytes that such a session goes on reading.
    """
    model = MODELS[name]()
    written = bytes(ort_file.write(ort_file.read(save_as_ort(model, tmp_path / "raw.ort"))))
    weights = [numpy_helper.to_array(tensor).tobytes() for tensor in model.graph.initializer]
    places = [written.find(weight) for weight in weights if len(weight) > 8]
    assert places
    assert all(place > 0 and place % 4 == 0 for place in places)


def test_order_in_the_file_does_not_matter(tmp_path: Path) -> None:
    session = ort_file.read(save_as_ort(graphs.mlp(), tmp_path / "raw.ort"))
    expected = ort_file.write(session)
    graph = session["model"]["graph"]
    for shuffled in (graph["initializers"], graph["node_args"], session["model"]["opset_import"]):
        assert len(shuffled) > 1
        shuffled.reverse()
    assert ort_file.write(session) != expected
    assert ort_file.write(ort_file.read(bytes(ort_file.write(session)))) == expected


def test_saved_runtime_optimizations_survive(tmp_path: Path) -> None:
    data = save_as_ort(graphs.conv_relu(), tmp_path / "raw.ort", runtime_optimizations=True)
    session = ort_file.read(data)
    assert "runtime_optimizations" in session["model"]["graph"]
    assert ort_file.read(bytes(ort_file.write(session))) == session


@pytest.mark.parametrize("damage", ["cut", "no identifier", "garbage"])
def test_damaged_file_is_refused(damage: str, tmp_path: Path) -> None:
    data = save_as_ort(graphs.mlp(), tmp_path / "raw.ort")
    damaged = {
        "cut": data[: len(data) // 3],
        "no identifier": b"\0" * 64,
        "garbage": data[:8] + b"\xff" * 500,
    }
    with pytest.raises(ValueError, match=r"truncated or damaged|not in the ONNX Runtime format"):
        ort_file.read(damaged[damage])


def test_unknown_field_is_refused_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = save_as_ort(graphs.mlp(), tmp_path / "raw.ort")
    monkeypatch.setitem(_SCHEMA, "Model", _SCHEMA["Model"][:7])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not in the schema"):
        ort_file.read(data)


@pytest.mark.parametrize("table", list(_SCHEMA))
def test_schema_is_that_of_the_installed_onnx_runtime(table: str) -> None:
    """Its wheel carries generated readers, one accessor a field, with the field's offset in the vtable."""
    source = (SCHEMA_FOLDER / f"{table}.py").read_text()
    accessors = re.findall(r"def (\w+)\(self[^)]*\):\n(?:.*\n)??.*self\._tab\.Offset\((\d+)\)", source)
    theirs = {int(offset) // 2 - 2: name for name, offset in reversed(accessors)}
    ours = {slot: name for slot, (name, kind) in enumerate(_SCHEMA[table]) if kind != "-"}
    assert set(theirs) == set(ours)
    for slot, name in ours.items():
        spelled = "KernelTypeStrResolver" if name == "resolver" else name.title().replace("_", "")
        assert theirs[slot].startswith(spelled), slot

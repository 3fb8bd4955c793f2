"""From a pair of files to the name of a node, and the folder that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

import onnxport
from onnxport.core.errors import UsageError
from onnxport.validate.report import Diagnosis
from tests.validate.debug import networks


def diagnosed(reference: Path, candidate: Path, output: Path | None = None) -> Diagnosis:
    found = onnxport.debug_model(reference, candidate, output).diagnosis
    assert found is not None
    return found


def name_of(found: Diagnosis) -> str:
    assert found.node is not None, found.summary
    return found.node.name


@contextmanager
def edited(path: Path) -> Iterator[Any]:
    """The tables of a `.tflite` file, which is written again with what was changed in them."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(path.read_bytes()), 0))
    yield model
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))


def test_where_the_two_agree_there_is_nothing_to_look_for(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 6)
    found = diagnosed(right, right)
    assert found.node is None
    assert "agree" in found.summary
    assert not found.layers


def test_layers_are_shown_on_request_where_the_two_agree(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 6)
    report = onnxport.debug_model(right, right, layers=True)
    assert report.passed
    assert report.diagnosis is not None
    assert len(report.diagnosis.layers) == 6


def test_the_node_is_named_with_both_values_and_its_figures(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 10)
    found = diagnosed(right, networks.chain(tmp_path / "wrong.onnx", 10, wrong=[4]))
    assert found.node is not None
    assert (found.node.name, found.node.op, found.node.value) == ("n4", "MatMul", "v4")
    assert found.node.stage == "candidate model"
    assert found.worst is not None
    assert found.worst.candidate == pytest.approx(found.worst.reference * 1.01, rel=1e-4)
    assert "MatMul 'n4'" in found.summary
    assert len(found.layers) == 10
    assert any("the fault also shows on" in note for note in found.notes), "looked at on other inputs"
    guilty = next(figure for figure in found.layers if figure.node.value == "v4")
    assert guilty.sqnr_db == pytest.approx(40, abs=0.1), "1 % is 40 dB"
    assert guilty.local_share is not None
    assert guilty.local_share > 1


def test_an_if_is_one_node(tmp_path: Path) -> None:
    right = networks.with_if(tmp_path / "right.onnx", 2.0)
    assert name_of(diagnosed(right, networks.with_if(tmp_path / "wrong.onnx", 2.1))) == "if"


def test_a_node_inside_a_function_is_named(tmp_path: Path) -> None:
    right = networks.with_function(tmp_path / "right.onnx", 2.0)
    found = diagnosed(right, networks.with_function(tmp_path / "wrong.onnx", 2.1))
    assert found.node is not None
    assert found.node.op == "Mul"


@pytest.mark.parametrize("baked", [(1, 8), (1, -1)])
def test_a_batch_baked_into_a_reshape_is_named(tmp_path: Path, baked: tuple[int, int]) -> None:
    """With (1, -1) it is the product behind it that cannot run."""
    right = networks.reshaped(tmp_path / "right.onnx", (-1, 8))
    found = diagnosed(right, networks.reshaped(tmp_path / "wrong.onnx", baked))
    assert name_of(found) == "reshape"


@pytest.mark.parametrize("target", ["ort", "tflite"])
def test_a_converted_fault_is_named_against_the_original(tmp_path: Path, target: str) -> None:
    right = networks.chain(tmp_path / "right.onnx", 8)
    wrong = networks.chain(tmp_path / "wrong.onnx", 8, wrong=[4])
    made = onnxport.convert_model(wrong, to=target, validate=False).path
    found = diagnosed(right, made)
    assert found.node is not None
    assert found.node.stage == target
    assert found.node.name == "n4"


def test_what_a_format_fuses_is_named_together(tmp_path: Path) -> None:
    """ONNX Runtime joins Conv and Relu when it saves an .ort file."""

    def model(name: str, by: float) -> Path:
        weights = {"w": (np.random.RandomState(0).randn(4, 3, 3, 3) * by).astype("f4")}
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node("Relu", ["c"], ["r"], name="relu"),
            helper.make_node("GlobalAveragePool", ["r"], ["y"], name="pool"),
        ]
        return networks.saved(tmp_path / name, nodes, weights, shape=(1, 3, 8, 8))

    right, wrong = model("right.onnx", 1.0), model("wrong.onnx", 1.02)
    found = diagnosed(right, onnxport.convert_model(wrong, to="ort", validate=False).path)
    assert name_of(found) == "conv"
    assert [ref.name for ref in found.candidates] == ["conv", "relu"]


def test_the_repro_shows_both_answers(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 10)
    wrong = networks.chain(tmp_path / "wrong.onnx", 10, wrong=[4])
    folder = tmp_path / "repro"
    found = diagnosed(right, wrong, folder)
    assert found.repro == str(folder)
    onnx.checker.check_model(folder / "model.onnx", full_check=True)
    assert [node.name for node in onnx.load(folder / "model.onnx").graph.node] == ["n4"]
    feeds, said = dict(np.load(folder / "inputs" / "inputs.npz")), np.load(folder / "answers.npz")
    for side, file in (("reference", "model.onnx"), ("candidate", "candidate.onnx")):
        (answer,) = onnxruntime.InferenceSession(folder / file).run(None, feeds)
        np.testing.assert_allclose(answer, said[side], rtol=1e-6)
    assert np.abs(said["reference"] - said["candidate"]).max() > 1e-3
    # Markdown's own characters are escaped there.
    assert found.summary in (folder / "README.md").read_text().replace("\\", "")


def test_the_repro_of_a_tflite_file_converts_with_the_command_it_names(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 6)
    wrong = networks.chain(tmp_path / "wrong.onnx", 6, wrong=[2])
    made = onnxport.convert_model(wrong, to="tflite", validate=False).path
    folder = tmp_path / "repro"
    diagnosed(right, made, folder)
    assert "onnxport convert model.onnx --to tflite --inputs inputs/" in (folder / "README.md").read_text()
    again = onnxport.convert_model(
        folder / "model.onnx", to="tflite", inputs=folder / "inputs", accept_inconclusive=True
    )
    assert again.report.verdict in ("proven", "unproven"), "the fault was put in before the conversion"


def test_an_earlier_repro_is_replaced_and_other_files_are_not(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 6)
    wrong = networks.chain(tmp_path / "wrong.onnx", 6, wrong=[2])
    folder = tmp_path / "repro"
    diagnosed(right, wrong, folder)
    diagnosed(right, networks.chain(tmp_path / "wrong.onnx", 6, wrong=[4]), folder)
    assert onnx.load(folder / "model.onnx").graph.node[0].name == "n4"
    (folder / "model.onnx").unlink()
    with pytest.raises(UsageError, match="contains other files"):
        onnxport.debug_model(right, wrong, folder)
    assert not list(tmp_path.glob(".onnxport-*"))


def test_a_reference_without_onnx_nodes_is_refused(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 6)
    made = onnxport.convert_model(right, to="ort").path
    with pytest.raises(UsageError, match="give the ONNX model first"):
        onnxport.debug_model(made, right)


@pytest.mark.parametrize("size", ["2 sheep", "-1GB", "0", ""])
def test_a_memory_limit_that_is_no_size_is_refused(tmp_path: Path, size: str) -> None:
    right = networks.chain(tmp_path / "right.onnx", 2)
    with pytest.raises(UsageError, match="give a size such as 500MB or 2GB"):
        onnxport.debug_model(right, right, memory_limit=size)


def test_a_node_with_several_wrong_outputs_is_named_by_its_first(tmp_path: Path) -> None:
    def model(name: str, halves: tuple[str, str]) -> Path:
        nodes = [
            helper.make_node("Split", ["x"], list(halves), name="split", axis=1),
            helper.make_node("Mul", ["one", "small"], ["one_less"], name="less"),
            helper.make_node("Concat", ["one_less", "two"], ["y"], name="join", axis=1),
        ]
        return networks.saved(tmp_path / name, nodes, {"small": np.array([1e-3], "f4")})

    found = diagnosed(model("right.onnx", ("one", "two")), model("wrong.onnx", ("two", "one")))
    assert found.node is not None
    assert (found.node.name, found.node.value, found.candidates) == ("split", "one", ())


def test_a_file_that_names_no_onnx_values_is_said_to_show_none(tmp_path: Path) -> None:
    right = networks.chain(tmp_path / "right.onnx", 12)
    made = onnxport.convert_model(
        networks.chain(tmp_path / "wrong.onnx", 12, wrong=[2]), to="tflite", validate=False
    ).path
    with edited(made) as file:
        file.metadata = []
    found = diagnosed(right, made)
    assert found.node is None
    assert "no node can be named" in found.summary
    assert "'y' differ" in found.summary


def test_what_a_tflite_file_computes_until_it_stops_is_compared(tmp_path: Path) -> None:
    """A convolution without its padding makes the sum behind it impossible."""
    random = np.random.RandomState(0)
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Abs", ["a"], ["b"], name="abs"),
        helper.make_node("Conv", ["b", "w"], ["c"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("Tanh", ["c"], ["d"], name="tanh"),
        helper.make_node("Add", ["b", "d"], ["y"], name="sum"),
    ]
    weights = {name: random.randn(3, 3, 3, 3).astype("f4") for name in "vw"}
    right = networks.saved(tmp_path / "right.onnx", nodes, weights, shape=(1, 3, 8, 8))
    made = onnxport.convert_model(right, to="tflite", validate=False).path
    with edited(made) as file:
        convolutions = [
            each for each in file.subgraphs[0].operators if hasattr(each.builtinOptions, "padding")
        ]
        assert len(convolutions) == 2
        convolutions[1].builtinOptions.padding = schema.Padding.VALID
    found = diagnosed(right, made, tmp_path / "repro")
    assert name_of(found) == "second"
    assert "shape [1, 3, 6, 6]" in found.summary
    assert not (tmp_path / "repro").exists()
    assert any("no repro" in note for note in found.notes)


def test_a_node_that_computes_nothing_inexact_has_to_be_exact(tmp_path: Path) -> None:
    """Halves are where rounding goes another way, and where the reference's own noise would hide that."""

    def model(name: str, op: str) -> Path:
        nodes = [
            helper.make_node("Mul", ["x", "eight"], ["a"], name="scale"),
            helper.make_node("Floor", ["a"], ["b"], name="whole"),
            helper.make_node("Div", ["b", "two"], ["c"], name="halves"),
            helper.make_node(op, ["c"], ["y"], name="last"),
        ]
        return networks.saved(
            tmp_path / name, nodes, {"eight": np.array([8], "f4"), "two": np.array([2], "f4")}
        )

    assert name_of(diagnosed(model("right.onnx", "Round"), model("wrong.onnx", "Floor"))) == "last"


def test_the_node_is_named_in_a_candidate_that_lacks_an_input_that_no_output_depends_on(
    tmp_path: Path,
) -> None:
    right = networks.chain(tmp_path / "right.onnx", 6)
    model = onnx.load(right)
    model.graph.input.append(helper.make_tensor_value_info("unread", onnx.TensorProto.FLOAT, ["N"]))
    onnx.save(model, right)
    found = diagnosed(right, networks.chain(tmp_path / "wrong.onnx", 6, wrong=[2]))
    assert name_of(found) == "n2"

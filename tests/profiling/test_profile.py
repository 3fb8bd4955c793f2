"""Profiles of a small model in each runtime."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import onnxport
from onnxport.core.child_process import ChildDied
from onnxport.core.errors import InputError, MachineError, UsageError
from onnxport.formats.artifact import Artifact
from onnxport.profiling import profile as profiling
from onnxport.profiling.params import ProfileParams
from tests.profiling.runtimes import Dying, Hanging

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
QUICK = {"runs": 4, "warmup": 1}


@pytest.fixture(scope="module")
def tflite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    return onnxport.convert_model(DIGITS, "tflite", folder / "digits.tflite", validate=False).path


def test_an_ort_file_is_traced_to_its_own_nodes_or_to_its_source(tmp_path: Path) -> None:
    made = onnxport.convert_model(DIGITS, "ort", tmp_path / "digits.ort", validate=False).path
    alone = onnxport.profile_model(made, **QUICK)
    assert all(node.sources == (node.name,) for node in alone.nodes)
    told = onnxport.profile_model(made, source=DIGITS, **QUICK)
    assert ("conv1", "bn1", "relu1") in {node.sources for node in told.nodes}


@pytest.mark.parametrize("provider", ["xnnpack", "cpu"])
def test_a_tflite_file_is_traced_to_its_source(provider: str, tflite: Path) -> None:
    report = onnxport.profile_model(tflite, source=DIGITS, provider=provider, **QUICK)
    assert {node.provider for node in report.nodes} <= {"XNNPACK", "LiteRT"}
    assert ("XNNPACK" in {node.provider for node in report.nodes}) is (provider == "xnnpack")
    found = [node.sources for node in report.nodes]
    assert ("conv1", "bn1", "relu1") in found
    assert ("pool",) in found
    assert found[-1] == ("flat", "logits")


def test_a_tflite_file_alone_is_traced_to_the_values_in_its_manifest(tflite: Path) -> None:
    report = onnxport.profile_model(tflite, **QUICK)
    assert report.nodes[-1].sources == ("logits",)
    assert ("relu1",) in [node.sources for node in report.nodes]
    assert any("--source" in note for note in report.notes)


def test_missing_sizes_are_asked_for(tmp_path: Path) -> None:
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", "length", 4]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(UsageError, match=r"--shape 'x=\?,SIZE,4'"):
        onnxport.profile_model(path, **QUICK)
    assert onnxport.profile_model(path, shape={"x": (2, 9, 4)}, **QUICK).nodes[0].sources == ("y",)


@pytest.mark.parametrize("name", ["damaged.onnx", "damaged.tflite", "damaged.ort"])
def test_damaged_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x08\x00\x00\x00TFL3ORTM" * 7)
    with pytest.raises(InputError, match=r"damaged"):
        onnxport.profile_model(tmp_path / name)


@pytest.mark.parametrize(
    ("kind", "error", "said"), [(Dying, ChildDied, "crashed"), (Hanging, MachineError, "hung")]
)
def test_a_runtime_that_dies_or_hangs_is_a_sentence(
    kind: type, error: type[MachineError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = (f"{kind.__module__}:{kind.__name__}", "ONNX Runtime")
    monkeypatch.setitem(profiling._TARGETS, "onnx", target)
    with pytest.raises(error, match=rf"ONNX Runtime profiling .*digits\.onnx {said}"):
        profiling.profile_model(Artifact.open(DIGITS), ProfileParams(timeout=2.0), "")

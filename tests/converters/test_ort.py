"""ONNX to ONNX Runtime format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.tools.reduced_build_config_parser import parse_config

from fixtures import graphs
from onnxport.converters.ort import convert
from onnxport.converters.params import OrtParams
from onnxport.core.errors import CannotConvertError, InputError
from onnxport.formats import ort_file
from onnxport.formats.manifest import KEY, Manifest
from onnxport.formats.model import Model

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
MANIFEST = Manifest("digest", {"onnxport": "1"}, {"ort": {"level": "all"}}, "required")
LEVELS = ("disable", "basic", "extended", "all")


def converted(model: onnx.ModelProto | Path, folder: Path, level: str = "all") -> Path:
    if not isinstance(model, Path):
        path = folder / "model.onnx"
        onnx.save(model, path)
        model = path
    output = folder / "model.ort"
    artifact, _, _ = convert(Model.load(model), output, OrtParams.model_validate({"level": level}), MANIFEST)
    assert artifact.path == output
    assert artifact.companions == (folder / "model.required_operators.config",)
    return output


@pytest.mark.parametrize("level", LEVELS)
def test_answers_are_those_of_the_source(level: str, tmp_path: Path) -> None:
    image = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    path = converted(DIGITS, tmp_path, level)
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})
    (found,) = onnxruntime.InferenceSession(path).run(None, {"image": image})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_no_file_is_bound_to_this_machine(level: str, tmp_path: Path) -> None:
    # With 16 channels in and out, the transformer for this machine's vector registers would apply.
    wide = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,16,8,8] x, float[16,16,3,3] w) => (float[1,16,6,6] y)'
        " { y = Conv(x, w) }"
    )
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    wide.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    del wide.graph.input[1]
    config = converted(wide, tmp_path, level).with_suffix(".required_operators.config").read_text()
    assert "Conv" in config
    assert "nchwc" not in config


def test_fresh_processes_write_the_same_bytes(tmp_path: Path) -> None:
    """What ONNX Runtime writes differs: some of its hash tables are seeded per process."""
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from tests.converters.test_ort import converted, varied\n"
        "converted(varied(), Path(sys.argv[2]))\n"
    )
    written = set()
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": str(number)}
        subprocess.run([sys.executable, "-c", program, ROOT, folder], check=True, env=environment)
        written.add(tuple(path.read_bytes() for path in sorted(folder.iterdir())))
    assert len(written) == 1


def varied() -> onnx.ModelProto:
    """Many operators: the table of their kernels is the one whose order changes from process to process."""
    operators = [
        "Abs",
        "Sin",
        "Cos",
        "Atan",
        "Tanh",
        "Sigmoid",
        "Softplus",
        "Elu",
        "Selu",
        "Erf",
        "Floor",
        "Neg",
    ]
    names = ["x", *(f"value{i}" for i in range(1, len(operators))), "y"]
    nodes = [
        onnx.helper.make_node(operator, [before], [after])
        for operator, before, after in zip(operators, names, names[1:], strict=False)
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "varied", ends[:1], ends[1:])
    return onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_manifest_is_inside(tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(converted(DIGITS, tmp_path))
    manifest = Manifest.from_json(session.get_modelmeta().custom_metadata_map[KEY])
    assert manifest.source == "digest"
    assert [(port.name, port.key, port.dtype, port.shape) for port in manifest.inputs] == [
        ("image", "image", "float32", (None, 1, 8, 8))
    ]
    assert [port.name for port in manifest.outputs] == ["logits"]


def test_other_metadata_of_the_model_is_kept(tmp_path: Path) -> None:
    model = graphs.mlp()
    onnx.helper.set_model_props(model, {"classes": json.dumps(["cat", "dog"])})
    session = onnxruntime.InferenceSession(converted(model, tmp_path))
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["cat", "dog"]


def test_required_operators_are_read_by_onnx_runtime_s_own_build(tmp_path: Path) -> None:
    config = converted(DIGITS, tmp_path).with_suffix(".required_operators.config")
    operators, types = parse_config(str(config), enable_type_reduction=True)
    assert operators == {
        "ai.onnx": {12: {"MaxPool"}, 13: {"Flatten", "Gemm"}},
        "com.microsoft": {1: {"FusedConv"}},
    }
    assert types is not None, "the config names no types"


def test_required_operators_name_no_path(tmp_path: Path) -> None:
    config = converted(DIGITS, tmp_path).with_suffix(".required_operators.config")
    assert str(tmp_path) not in config.read_text()
    assert "model.ort" in config.read_text()


def test_weights_in_external_data_end_up_inside(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    path = converted(graphs.external_data(source), tmp_path)
    before = sorted(file.name for file in source.iterdir())
    for file in source.iterdir():
        file.unlink()
    onnxruntime.InferenceSession(path)
    assert before == ["model.onnx", "model.onnx.data"], "the source's folder was written to"


def test_model_beyond_the_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "to_bytes", lambda self: None)  # as it says of more than 2 GB
    with pytest.raises(CannotConvertError, match="at most 2 GB"):
        converted(DIGITS, tmp_path)


def test_raw_file_of_onnx_runtime_is_gone(tmp_path: Path) -> None:
    converted(DIGITS, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"model.ort", "model.required_operators.config"}


def test_younger_form_of_the_format_is_kept_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(data: bytes) -> None:
        raise ValueError("field 11 of Model is beyond the schema that we know")

    monkeypatch.setattr(ort_file, "read", refuse)
    output = tmp_path / "model.ort"
    _, notes, _ = convert(Model.load(DIGITS), output, OrtParams(), MANIFEST)
    assert "may have other bytes in the next run: field 11 of Model" in notes[1]
    onnxruntime.InferenceSession(output)


def test_missing_kernel_is_named(tmp_path: Path) -> None:
    """ONNX Runtime knows the operator and has no kernel for the type."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (double[2] x) => (double[2] y) { y = Atan(x) }'
    )
    model.graph.node[0].name = "angle"
    with pytest.raises(CannotConvertError, match=r"Atan.*'angle'"):
        converted(model, tmp_path)


def test_an_opset_that_is_not_released_is_the_inputs_fault(tmp_path: Path) -> None:
    model = graphs.mlp()
    model.opset_import[0].version = 99
    with pytest.raises(InputError, match=r"model\.onnx has opset 99, newer than ONNX Runtime \S+ knows"):
        converted(model, tmp_path)


def test_a_node_whose_sizes_do_not_fit_is_the_inputs_fault(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x, float[4,5] w) => (float[2,5] y)'
        " { y = MatMul(x, w) }"
    )
    with pytest.raises(
        InputError, match=r"is not a valid ONNX model: ONNX Runtime says: .*Incompatible dimensions"
    ):
        converted(model, tmp_path)

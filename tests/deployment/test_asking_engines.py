"""Engines asked: what takes a model runs it, what refuses it names nodes, and the change it is told works."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from fixtures import models
from onnxport.deployment.estimation.graph import estimation_graph
from onnxport.deployment.probes.refusals import mnn, ncnn, openvino, tract
from onnxport.deployment.report import Placement
from tests.cli.sandbox import DIGITS, Sandbox
from tests.deployment.test_estimating import model, node

ENGINES = ("openvino", "tract", "rten", "ncnn", "mnn")
SIZES = {"x": (1, 3, 8, 8)}


def asked(path: Path, *engines: str, **options: object) -> dict[str, Placement]:
    report = onnxport.inspect_deployment(path, engines, **options)
    return {each.runtime: each for each in report.placements}


def test_an_engine_that_takes_a_network_has_run_it() -> None:
    found = asked(DIGITS, *ENGINES)
    assert {name: (each.how, each.extent, each.taken) for name, each in found.items()} == dict.fromkeys(
        ENGINES, ("asked", "all", 9)
    )
    for name in ("openvino", "tract", "ncnn", "mnn"):
        assert found[name].notes == ("it ran once on image [1, 1, 8, 8]",)
    assert "rten-convert" in found["rten"].notes[0]


def test_an_operator_that_an_engine_lacks_is_named_with_its_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Det", ["x"], ["d"], name="volume"),
        helper.make_node("Neg", ["d"], ["y"], name="other"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    path = tmp_path / "det.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    for name, found in asked(path, "tract", "rten").items():
        refused = [(each.op, each.node) for each in found.fallbacks]
        assert (name, found.extent, found.taken, refused) == (name, "none", 1, [("Det", "volume")])


def test_rten_takes_a_model_with_weights_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "apart.onnx"
    onnx.save(onnx.load(DIGITS), path, save_as_external_data=True, location="apart.data", size_threshold=0)
    assert asked(path, "rten")["rten"].extent == "all"


def declared(folder: Path, dims: list[str | int]) -> Path:
    """A convolution of [N, 3, 8, 8] whose result the file declares as `dims`."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [weights],
        value_info=[helper.make_tensor_value_info("c", TensorProto.FLOAT, dims)],
    )
    path = folder / "stale.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_tract_names_contradicting_declared_shapes_and_the_suggested_command_removes_them(
    tmp_path: Path,
) -> None:
    sandbox = Sandbox(tmp_path)
    path = declared(sandbox.folder, [1, 4, 6, 6])
    assert asked(path, "tract")["tract"].extent == "all"
    refused = asked(path, "tract", shape={"x": (1, 3, 16, 16)})["tract"]
    assert (refused.extent, [(each.node, each.why) for each in refused.fallbacks]) == (
        "none",
        [("conv", "the file declares 'c' as [1, 4, 6, 6], [1, 4, 14, 14] follows")],
    )
    assert refused.change is not None
    assert "--drop-shapes" in refused.change.command
    assert sandbox.run(*shlex.split(refused.change.command)[1:], "--no-validate").code == 0
    mended = sandbox.folder / "stale_optimized.onnx"
    assert asked(mended, "tract", shape={"x": (1, 3, 16, 16)})["tract"].extent == "all"


@pytest.mark.real
@pytest.mark.exhaustive
def test_yunet_at_another_size_in_tract(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    path = sandbox.folder / "yunet.onnx"
    path.write_bytes(models.path("yunet/face_detection_yunet_2023mar.onnx").read_bytes())
    assert asked(path, "tract")["tract"].extent == "all"
    refused = asked(path, "tract", shape={"input": (1, 3, 320, 320)})["tract"]
    reasons = [each.why for each in refused.fallbacks]
    assert len(reasons) == 94
    assert "the file declares '419' as [1, 16, 320, 320], [1, 16, 160, 160] follows" in reasons
    assert refused.change is not None
    assert refused.change.mends == 94
    assert sandbox.run(*shlex.split(refused.change.command)[1:]).code == 0
    mended = sandbox.folder / "yunet_optimized.onnx"
    assert asked(mended, "tract", shape={"input": (1, 3, 320, 320)})["tract"].extent == "all"
    judged = sandbox.run("validate", "yunet.onnx", mended.name, "--candidate-runtime", "runtime=tract")
    assert (judged.code, "proven" in judged.stdout) == (0, True)


SUBJECT = model(
    [node("IsNaN", "x", "b"), node("Cast", "b", "f", to=1), node("Conv", "f w", "y")],
    weights={"w": np.ones((4, 3, 3, 3), np.float32)},
)
GRAPH = estimation_graph(SUBJECT)


@pytest.mark.parametrize(
    ("reader", "said", "found"),
    [
        (
            tract,
            'Translating node #1 "IsNaN_b" Unimplemented(IsNaN) ToTypedTranslator: Operator can not be made a TypedOp.',
            [("IsNaN", "IsNaN_b", "tract has no IsNaN")],
        ),
        (
            tract,
            'Failed analyse for node #5 "If_0" If: Failed analyse for node #1 "Conv_y" ConvHir: rank 3 expected',
            [("Conv", "Conv_y", "rank 3 expected")],
        ),
        (
            openvino,
            "Model wasn't fully converted. Failed operations detailed log: -- Conv-16 with a message: While validating "
            "ONNX node '<Node(Conv): y>': The input data tensor's rank has to be known (static) Summary: -- No "
            "conversion rule found for operations: ai.onnx.IsNaN, ai.onnx.ml.Scaler",
            [
                ("IsNaN", "IsNaN_b", "OpenVINO has no conversion rule for IsNaN"),
                ("Conv", "Conv_y", "The input data tensor's rank has to be known (static)"),
            ],
        ),
        (
            mnn,
            "[15:36:02] :220: These Op Not Support: ONNX::IsNaN | ONNX::Other Converted Failed!",
            [("IsNaN", "IsNaN_b", "MNN's converter has no IsNaN")],
        ),
        (
            ncnn,
            "layer IsNaN not exists or registered",
            [("IsNaN", "IsNaN_b", "ncnn has no layer for IsNaN")],
        ),
        (
            ncnn,
            "layer Tensor.to not exists or registered",
            [("Cast", "Cast_f", "ncnn has no layer for Cast")],
        ),
    ],
)
def test_words_of_refusal_are_read_as_nodes(reader, said: str, found: list[tuple[str, str, str]]) -> None:  # type: ignore[no-untyped-def]
    refused = reader(said, GRAPH, SUBJECT, SIZES)
    assert [(each.op, each.node, each.why) for each in refused.fallbacks] == found


@pytest.mark.parametrize("reader", [tract, openvino, mnn, ncnn])
def test_words_that_are_new_are_shown_as_they_are(reader) -> None:  # type: ignore[no-untyped-def]
    refused = reader("something  else\nhappened", GRAPH, SUBJECT, SIZES)
    assert (refused.fallbacks, refused.why) == ((), "something else happened")

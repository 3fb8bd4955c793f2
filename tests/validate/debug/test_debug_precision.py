"""Candidates of a lower precision: rounding is no fault, a fault stands out of it, and quality has no faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxport
from fixtures import models
from onnxport.formats.model import Model
from onnxport.validate.debug.graph import Network
from onnxport.validate.debug.local_error import Replay
from onnxport.validate.debug.rounding import Rounds
from onnxport.validate.report import Report
from tests.faults import surgery
from tests.validate import lower
from tests.validate.debug import networks

SHAPE = ("n", 3, 16, 16)


def network(path: Path, *, swapped: int | None = None) -> Path:
    """Five convolutions with Relu between them, a mean and a product; two channels of one may be swapped."""
    random = np.random.RandomState(0)
    nodes, weights, last, width = [], {}, "x", 3
    for number in range(5):
        kernel = random.randn(8, width, 3, 3).astype("f4") * np.float32((2 / (9 * width)) ** 0.5)
        weights[f"w{number}"] = kernel[[1, 0, *range(2, 8)]] if number == swapped else kernel
        nodes += [
            helper.make_node(
                "Conv", [last, f"w{number}"], [f"c{number}"], name=f"conv{number}", pads=[1] * 4
            ),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"], name=f"relu{number}"),
        ]
        last, width = f"r{number}", 8
    weights["w"] = random.randn(8, 10).astype("f4")
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["mean"], name="mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], name="flat"),
        helper.make_node("MatMul", ["flat", "w"], ["y"], name="product"),
    ]
    saved = networks.saved(path, nodes, weights, shape=SHAPE)
    model = onnx.load(saved)
    del model.graph.output[0].type.tensor_type.shape.dim[2:]
    onnx.save(model, saved)
    return saved


def saved(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


def beyond(report: Report) -> dict[str, float]:
    """The values whose nodes are beyond what is allowed."""
    assert report.diagnosis is not None
    assert report.diagnosis.layers
    return {f.node.value: f.local_share for f in report.diagnosis.layers if (f.local_share or 0.0) > 1}


def test_two_files_of_one_precision_are_held_to_its_tolerance_as_they_are() -> None:
    for precision in ("float16", "int8", "int16x8"):
        assert Rounds.of(precision, precision) == Rounds(precision, made=False)
    for precision in ("float32", "int8 weights"):  # which compute in float32
        assert Rounds.of(precision, precision) == Rounds("float32", made=False)
    assert Rounds.of("float32", "float16") == Rounds("float16", made=True)


@pytest.mark.parametrize("make", [lower.half, lower.half_weights], ids=["float16", "weights"])
def test_a_fault_is_named_in_a_float16_copy(make: Any, tmp_path: Path) -> None:
    right = network(tmp_path / "right.onnx")
    wrong = make(onnx.load(network(tmp_path / "wrong.onnx", swapped=2)))
    found = onnxport.debug_model(right, saved(wrong, tmp_path / "half.onnx")).diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert found.node.name == "conv2"
    assert "is at fault" in found.summary
    assert not any("not alone" in note for note in found.notes)


@pytest.mark.parametrize("make", [lower.half, lower.half_weights], ids=["float16", "weights"])
def test_float16_rounding_is_no_fault_of_any_node(make: Any, tmp_path: Path) -> None:
    right = network(tmp_path / "right.onnx")
    half = saved(make(onnx.load(right)), tmp_path / "half.onnx")
    report = onnxport.debug_model(right, half, layers=True)
    assert report.passed
    assert beyond(report) == {}


def test_a_fault_is_named_in_tflite_with_float16_weights(tmp_path: Path) -> None:
    right = network(tmp_path / "right.onnx")
    wrong = onnxport.convert_model(
        network(tmp_path / "wrong.onnx", swapped=3), to="tflite", validate=False
    ).path
    half = lower.half_tflite(wrong, tmp_path / "half.tflite")
    found = onnxport.debug_model(right, half).diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert found.node.name == "conv3"
    assert "without XNNPACK" in found.tapping


@pytest.mark.parametrize("swapped", [None, 2], ids=["right", "wrong"])
def test_no_node_is_blamed_for_sizes_that_the_candidate_does_not_take(
    swapped: int | None, tmp_path: Path
) -> None:
    """Generated inputs are clipped in an int8 file, which is no fault, while its one row decides the verdict."""
    right = network(tmp_path / "right.onnx")
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=np.random.RandomState(2).randn(20, *SHAPE[1:]).astype("f4"))
    made = onnxport.convert_model(
        network(tmp_path / "wrong.onnx", swapped=swapped),
        to="tflite",
        precision="int8",
        calib=samples,
        shape={"x": (1, 3, 16, 16)},
        validate=False,
    ).path
    found = onnxport.debug_model(right, made).diagnosis
    assert found is not None
    assert found.node is None
    assert "--shape" in found.summary
    found = onnxport.debug_model(right, made, shape={"x": (1, 3, 16, 16)}, inputs=samples).diagnosis
    assert found is not None
    assert (found.node is not None) == (swapped is not None)


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    random = np.random.RandomState(1)
    samples = [{"x": random.randn(2, *SHAPE[1:]).astype("f4")} for _ in range(4)]
    (tmp_path / "inputs").mkdir()
    for number, sample in enumerate(samples):
        np.savez(tmp_path / "inputs" / f"{number}.npz", **sample)
    return lower.static(onnx.load(network(tmp_path / "right.onnx")), samples, tmp_path / "int8.onnx")


def ranked(quantized: Path) -> Report:
    return onnxport.debug_model(
        quantized.with_name("right.onnx"),
        quantized,
        budget={"sqnr": 90.0},
        inputs=quantized.with_name("inputs"),
    )


def test_what_int8_costs_is_ranked_and_no_fault(quantized: Path) -> None:
    report = ranked(quantized)
    assert report.verdict == "over budget"
    found = report.diagnosis
    assert found is not None
    assert found.summary.startswith("most accuracy is lost at ")
    assert "at fault" not in found.summary
    assert beyond(report) == {}
    lost = [f.local_sqnr_db for f in found.layers if f.local_sqnr_db is not None]
    assert len(lost) > 3
    assert min(lost) > 5, "the Relu that the quantizer leaves to the codes is not lost"


def test_the_node_that_loses_most_is_named(quantized: Path) -> None:
    """A scale of an eighth of what is needed cuts most of what the third convolution gives."""
    model = onnx.load(quantized)
    scale = next(t for t in model.graph.initializer if t.name == "r2_scale")
    values = onnx.numpy_helper.to_array(scale) / np.float32(8)
    scale.CopyFrom(onnx.numpy_helper.from_array(values, scale.name))
    onnx.save(model, quantized)
    report = ranked(quantized)
    found = report.diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert found.node.name == "conv2"
    assert "loses most by far" in found.summary


@pytest.mark.parametrize("level", ["DISABLE_ALL", "ENABLE_ALL"])
def test_rounding_flips_of_an_int8_model_are_no_faults(quantized: Path, level: str, tmp_path: Path) -> None:
    report = onnxport.debug_model(
        quantized, lower.as_ort(quantized, tmp_path / "m.ort", level), layers=True, samples=4
    )
    assert report.passed
    assert beyond(report) == {}


@pytest.mark.parametrize(("value", "size"), [("codes", 1), ("back", 0.25)])
def test_one_step_is_rounding_and_eight_are_not(value: str, size: float, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"], name="quantize"),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["back"], name="dequantize"),
        helper.make_node("Neg", ["back"], ["y"], name="neg"),
    ]
    weights = {"scale": np.array(0.25, "f4"), "zero": np.array(128, "u1")}
    network = Network(Model.load(networks.saved(tmp_path / "m.onnx", nodes, weights)))
    x = np.random.RandomState(0).randn(16, networks.WIDTH).astype("f4")
    codes = np.clip(np.rint(x / 0.25) + 128, 0, 255).astype("u1")
    right = {"codes": codes, "back": (codes.astype("f4") - 128) * np.float32(0.25)}[value]

    def share(steps: int) -> float:
        given = right.copy()
        given[3, 3] += given.dtype.type(steps * size)
        replay = Replay(network, [value], {}, Rounds("int8"))
        return replay.compare([value], {"x": x}, {value: given})[value].share

    assert share(1) <= 1
    assert share(8) > 1


def test_a_fault_is_named_in_the_same_int8_model(quantized: Path, tmp_path: Path) -> None:
    model = onnx.load(quantized)
    weights = next(t for t in model.graph.initializer if t.name == "w3_quantized")
    values = onnx.numpy_helper.to_array(weights).copy()
    values[[0, 1]] = values[[1, 0]]
    weights.CopyFrom(onnx.numpy_helper.from_array(values, weights.name))
    found = onnxport.debug_model(quantized, saved(model, tmp_path / "wrong.onnx")).diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert {"w3_DequantizeLinear_Output", "c3"} & {found.node.value, *(r.value for r in found.candidates)}
    assert "at fault" in found.summary


@pytest.fixture
def artefacts(quantized: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The int8 model as TFLite, and the same with two channels of the third convolution swapped."""
    model = onnx.load(quantized)
    weights = next(t for t in model.graph.initializer if t.name == "w3_quantized")
    values = onnx.numpy_helper.to_array(weights).copy()
    values[[0, 1]] = values[[1, 0]]
    weights.CopyFrom(onnx.numpy_helper.from_array(values, weights.name))
    wrong = saved(model, tmp_path / "wrong.onnx")
    right, other = (
        onnxport.convert_model(each, "tflite", validate=False, latency=False).path
        for each in (quantized, wrong)
    )
    return right, other


def test_the_integer_kernels_of_a_tflite_file_show_their_values(
    quantized: Path, artefacts: tuple[Path, Path]
) -> None:
    right, wrong = artefacts
    report = onnxport.debug_model(quantized, right, layers=True)
    assert report.passed
    assert beyond(report) == {}
    assert report.diagnosis is not None
    assert len(report.diagnosis.layers) > 3
    found = onnxport.debug_model(quantized, wrong).diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert {"w3_DequantizeLinear_Output", "c3"} & {found.node.value, *(r.value for r in found.candidates)}


def test_a_node_of_an_int8_tflite_file_is_named_beside_the_float_model(
    quantized: Path, artefacts: tuple[Path, Path]
) -> None:
    report = onnxport.debug_model(
        quantized.with_name("right.onnx"),
        artefacts[1],
        budget={"sqnr": 90.0},
        inputs=quantized.with_name("inputs"),
    )
    found = report.diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert found.node.name == "conv3"


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.parametrize("make", [lower.half, lower.half_weights], ids=["float16", "weights"])
def test_swapped_channels_are_named_in_a_float16_mobilenet(make: Any, tmp_path: Path) -> None:
    """Companions overflow float16 in the first convolution already, and dead channels are their rounded bias."""
    path = models.path("mobilenetv2/mobilenetv2.onnx")
    wrong = lower.folded(onnx.load(path))
    tensor = next(t for t in wrong.graph.initializer if "features.7.conv.2" in t.name and len(t.dims) == 4)
    surgery.edit(tensor, lambda values: values.__setitem__([0, 1], values[[1, 0]]))
    found = onnxport.debug_model(path, saved(make(wrong), tmp_path / "half.onnx")).diagnosis
    assert found is not None
    assert found.node is not None, found.summary
    assert found.node.name == "features.7.conv.2.conv"

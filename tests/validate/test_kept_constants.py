"""A TFLite file of float16 weights holds its small constants in float32, and so does what it is compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate.folded_constants import fold_constants
from onnxport.validate.precision import least_rounded, precision_of
from onnxport.validate.rounded_transforms import round_transforms
from tests.converters.tflite.models import run_onnx
from tests.validate.models import parsed

# Float16 does not hold NeMo's guard of a logarithm: its smallest normal number is a thousand times larger.
GUARD = 2.0**-24


def log_of_filters(path: Path, guard: float = GUARD) -> Path:
    """The logarithm of 64 filters on 32 features, many of them 0: what a speech front end computes."""
    body = "p = MatMul (x, w) r = Relu (p) g = Add (r, guard) y = Log (g)"
    model = parsed(f"g (float[4, 32] x) => (float[4, 64] y) {{ {body} }}")
    weights = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    for name, values in (("w", weights), ("guard", np.array(guard, np.float32))):
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def artefact(folder: Path) -> Path:
    made = folder / "m.tflite"
    onnxport.convert_model(log_of_filters(folder / "m.onnx"), to="tflite", precision="fp16", output=made)
    return made


def test_a_guard_that_float16_does_not_hold_is_proven_by_answers_alone(folder: Path, artefact: Path) -> None:
    report = onnxport.validate_model(folder / "m.onnx", artefact)
    assert (report.verdict, report.candidate.precision) == ("proven", "float16 weights")
    fidelity = report.judgements[0]
    # Not by the file's own numbers, which help only where each node is found again.
    assert (fidelity.question, fidelity.against) == (
        "fidelity",
        "the reference with weights rounded to float16",
    )
    assert (fidelity.outputs[0].sqnr_db or 0.0) > 80


def test_another_guard_is_a_fault(folder: Path, artefact: Path) -> None:
    """The number that float16 would make of it: rounding does not explain it, since the file did not round it."""
    other = log_of_filters(folder / "other.onnx", 2.0**-14)
    report = onnxport.validate_model(other, artefact)
    assert report.verdict == "not equivalent", report.reason


def test_the_smallest_rounded_constant_is_read_off_the_file(folder: Path, artefact: Path) -> None:
    found = Artifact.open(artefact)
    assert precision_of(found) == "float16 weights"
    assert least_rounded(found, "float16 weights") == 32 * 64
    assert least_rounded(found, "float16") == 0
    assert least_rounded(Artifact.open(folder / "m.onnx"), "float16 weights") == 0


def test_a_weight_that_the_source_computes_is_rounded_as_a_stored_one(folder: Path) -> None:
    """Torchaudio's resampling: a file stores the kernel, the source 64 numbers of which it computes it."""
    body = "k = Mul (column, row) s = Sin (k) w = Cast <to = 1> (s) p = MatMul (x, w) y = Relu (p)"
    model = parsed(f"g (float[4, 32] x) => (float[4, 64] y) {{ {body} }}")
    for name, shape in (("column", (32, 1)), ("row", (1, 64))):
        values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(model, folder / "computed.onnx")
    source = Model.load(folder / "computed.onnx")
    folded = fold_constants(source)
    assert [node.op_type for node in folded.graph] == ["MatMul", "Relu"]
    x = np.random.default_rng(2).standard_normal((4, 32)).astype(np.float32)
    assert np.array_equal(*(run_onnx(each, {"x": x})["y"] for each in (source, folded)))
    made = folder / "computed.tflite"
    onnxport.convert_model(folder / "computed.onnx", to="tflite", precision="fp16", output=made)
    fidelity = onnxport.validate_model(folder / "computed.onnx", made).judgements[0]
    assert fidelity.verdict == "proven", fidelity.reason
    assert fidelity.against == "the reference with weights rounded to float16"


@pytest.mark.parametrize("shape", ["2, 96", "2, 96, 1"])
@pytest.mark.parametrize("one_sided", [0, 1])
def test_a_fourier_transform_is_what_it_was_but_for_its_rounded_matrix(shape: str, one_sided: int) -> None:
    """NeMo's front end: 51 dB lie between the exact matrix and the rounded one that a file holds."""
    body = f"y = STFT <onesided = {one_sided}> (x, step, window)"
    text = f"g (float[{shape}] x) => (float[N, M, K, 2] y) <int64 step = {{8}}> {{ {body} }}"
    proto = parsed(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.hanning(32).astype(np.float32), "window"))
    model = Model(ir.from_proto(proto))
    x = np.random.default_rng(3).standard_normal([int(size) for size in shape.split(",")]).astype(np.float32)
    expected = run_onnx(model, {"x": x})["y"]
    exact, rounded = model.clone(), model.clone()
    assert round_transforms(exact, lambda values, name: values) == {"y/kernel"}
    round_transforms(rounded, lambda values, name: values.astype(np.float16).astype(np.float32))
    assert "STFT" not in {node.op_type for node in exact.graph}
    np.testing.assert_allclose(run_onnx(exact, {"x": x})["y"], expected, atol=2e-5)
    assert 1e-5 < np.abs(run_onnx(rounded, {"x": x})["y"] - expected).max() < 1e-2


def test_a_classifier_that_answers_logits_and_probabilities_is_judged(tmp_path: Path) -> None:
    body = "logits = MatMul (x, w) probs = Softmax (logits)"
    model = parsed(f"g (float[4, 32] x) => (float[4, 64] logits, float[4, 64] probs) {{ {body} }}")
    weights = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    made = onnxport.convert_model(
        tmp_path / "m.onnx", to="tflite", precision="fp16", output=tmp_path / "m.tflite"
    )
    assert made.report.verdict == "proven", made.report.reason

"""Run-time quantization of a source: left out, kept, or refused where its answers hang on it.

ONNX Runtime's quantize_dynamic makes the sources of a trained net. Plain ONNX Runtime and LiteRT's interpreter say what
source and artefact answer to its test images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import onnxport
from fixtures import reality
from onnxport.core.errors import CannotConvertError, NotProvenError, UsageError
from tests.dynamic_models import FORMS

Array = np.ndarray
DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"
IMAGES: Array = np.load(DIGITS / "test.npz")["image"][:60]


def quantized(source: Path, folder: Path) -> Path:
    path = folder / f"{source.stem}_dynamic.onnx"
    # uint8 weights: kernels for int8 saturate on CPUs without VNNI.
    quantize_dynamic(str(source), str(path), weight_type=QuantType.QUInt8)
    return path


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return quantized(DIGITS / "digits.onnx", tmp_path)


def stretched_digits(folder: Path) -> Path:
    """The net with one channel 400 times as large, which the last weights take back: the same function.

    A scale for all channels then leaves nothing of the others.
    """
    model = onnx.load(DIGITS / "digits.onnx")
    held = {each.name: each for each in model.graph.initializer}
    for name, columns, factor in (("4.weight", 1, 400), ("4.bias", 1, 400), ("9.weight", 16, 1 / 400)):
        array = numpy_helper.to_array(held[name]).copy()
        array[..., 7 * columns : 8 * columns] *= factor
        held[name].CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, folder / "stretched.onnx")
    return folder / "stretched.onnx"


@pytest.fixture
def stretched(tmp_path: Path) -> Path:
    return quantized(stretched_digits(tmp_path), tmp_path)


def answers_of(path: Path) -> Array:
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return np.concatenate([session.run(None, {"image": image[None]})[0] for image in IMAGES])
    run = Interpreter(str(path)).get_signature_runner()
    return np.concatenate([run(image=image[None])["logits"] for image in IMAGES])


def level(reference: Array, candidate: Array) -> float:
    """SQNR in dB."""
    return float(10 * np.log10(np.square(reference).sum() / np.square(reference - candidate).sum()))


def test_kept_run_time_quantization_answers_as_the_source(digits: Path, tmp_path: Path) -> None:
    kept = onnxport.convert_model(
        digits, "tflite", output=tmp_path / "kept.tflite", dynamic_quantization="keep"
    )
    onnxport.convert_model(digits, "tflite", output=tmp_path / "float.tflite")
    source = answers_of(digits)
    differences = np.abs(answers_of(tmp_path / "kept.tflite") - source).max(axis=1)
    # A code that rounds the other way shows in few images; float arithmetic differs in all.
    assert np.quantile(differences, 0.8) < 1e-4
    assert np.quantile(np.abs(answers_of(tmp_path / "float.tflite") - source).max(axis=1), 0.2) > 1e-3
    (fidelity, quality) = kept.report.judgements
    assert (fidelity.question, fidelity.verdict, fidelity.against) == (
        "fidelity",
        "proven",
        "the reference itself",
    )
    assert quality.verdict == "measured"
    assert onnxport.validate_model(digits, tmp_path / "kept.tflite").verdict == "proven"


def test_a_core_ml_package_keeps_it_too(digits: Path, tmp_path: Path) -> None:
    output = tmp_path / "kept.mlpackage"
    report = onnxport.convert_model(digits, "coreml", output=output, dynamic_quantization="keep").report
    assert report.verdict == "proven"
    assert report.judgements[0].against == "the reference itself"
    source = answers_of(digits)
    package = onnxport.load(output)
    given = np.concatenate([package.run({"image": image[None]})["logits"] for image in IMAGES])
    assert np.quantile(np.abs(given - source).max(axis=1), 0.8) < 1e-4


def test_other_weights_of_a_kept_form_are_found(digits: Path, tmp_path: Path) -> None:
    model = onnx.load(digits)
    held = next(each for each in model.graph.initializer if each.name == "9.weight_quantized")
    codes = numpy_helper.to_array(held).copy()
    codes[:, 3] = codes[:, 4]
    held.CopyFrom(numpy_helper.from_array(codes, held.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    onnxport.convert_model(
        tmp_path / "wrong.onnx", "tflite", output=tmp_path / "wrong.tflite", dynamic_quantization="keep"
    )
    report = onnxport.validate_model(digits, tmp_path / "wrong.tflite")
    assert report.verdict == "not equivalent"


def test_answers_that_hang_on_it_are_refused_by_default(stretched: Path, tmp_path: Path) -> None:
    floats = answers_of(tmp_path / "stretched.onnx")
    source = answers_of(stretched)
    assert level(source, floats) < 10, "the source answers something else than its float arithmetic"
    output = tmp_path / "m.tflite"
    with pytest.raises(NotProvenError) as refused:
        onnxport.convert_model(stretched, "tflite", output=output)
    assert not output.exists()
    for each in ("the floor is 10 dB", "--dynamic-quantization keep", "--dynamic-quantization float"):
        assert each in str(refused.value)
    with pytest.raises(NotProvenError, match="--dynamic-quantization keep"):
        onnxport.convert_model(stretched, "coreml", output=tmp_path / "m.mlpackage")


def test_a_refused_conversion_has_two_ways_out(stretched: Path, tmp_path: Path) -> None:
    kept, floats = tmp_path / "kept.tflite", tmp_path / "float.tflite"
    report = onnxport.convert_model(stretched, "tflite", output=kept, dynamic_quantization="keep").report
    assert report.verdict == "proven"
    assert level(answers_of(stretched), answers_of(kept)) > 30
    report = onnxport.convert_model(stretched, "tflite", output=floats, dynamic_quantization="float").report
    assert report.verdict == "proven"
    assert any("as --dynamic-quantization float asks" in note for note in report.notes)
    # Of the float net that the source was made from: weights of 8 bits remain.
    assert level(answers_of(tmp_path / "stretched.onnx"), answers_of(floats)) > 15


def test_validate_says_the_same_as_convert(stretched: Path, tmp_path: Path) -> None:
    asked, silent = tmp_path / "asked.tflite", tmp_path / "silent.tflite"
    onnxport.convert_model(stretched, "tflite", output=asked, dynamic_quantization="float", validate=False)
    onnxport.convert_model(stretched, "tflite", output=silent, validate=False)
    assert onnxport.validate_model(stretched, asked).verdict == "proven"
    report = onnxport.validate_model(stretched, silent)
    assert report.verdict == "over budget"
    assert "--dynamic-quantization keep" in report.reason
    found = next(each for each in report.judgements if each.question == "quality")
    assert found.against == "the reference itself"
    # The user's limit replaces ours.
    assert onnxport.validate_model(stretched, silent, budget={"sqnr": -10}).verdict == "proven"
    assert onnxport.validate_model(stretched, silent, budget={"sqnr": 20}).verdict == "over budget"
    assert onnxport.validate_model(stretched, silent, accept_quality=True).verdict == "unproven"


def test_a_layer_that_cannot_be_kept_names_the_way_out(tmp_path: Path) -> None:
    proto, *_ = FORMS["lstm"](np.random.default_rng(3))
    onnx.save(proto, tmp_path / "lstm.onnx")
    with pytest.raises(CannotConvertError, match="give --dynamic-quantization float"):
        onnxport.convert_model(tmp_path / "lstm.onnx", "tflite", dynamic_quantization="keep")


def test_onnx_runtime_s_own_format_has_no_such_option(digits: Path) -> None:
    with pytest.raises(UsageError, match="converting to ort has no option 'dynamic_quantization'"):
        onnxport.convert_model(digits, "ort", dynamic_quantization="keep")


def test_a_deep_encoder_is_held_to_its_own_noise(tmp_path: Path) -> None:
    """Eight layers make 3 % of last bits, on which the kernels of ONNX Runtime agree: they do not show it."""
    source = reality.path("traceforge/encoder.onnx")
    output = tmp_path / "kept.tflite"
    report = onnxport.convert_model(source, "tflite", output=output, dynamic_quantization="keep").report
    assert report.verdict == "proven"
    assert report.judgements[0].against == "the reference itself"
    # Its float arithmetic is as near on ordinary tokens; not on those that training never saw.
    report = onnxport.convert_model(source, "tflite", output=tmp_path / "float.tflite").report
    assert report.verdict == "proven"
    assert any("of extreme values, 'last_hidden_state' is 8." in note for note in report.notes)

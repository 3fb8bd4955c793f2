"""A file whose weights are rounded right is proven, whatever hangs on these roundings; another one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxport
from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.runtimes.litert import TfliteRuntime
from onnxport.runtimes.mlprogram.runtime import MilRuntime
from onnxport.validate.fidelity import Fidelity
from onnxport.validate.judge import ReferenceRun
from onnxport.validate.lifted_reference import LiftedReference, lift_mlpackage, lift_tflite
from onnxport.validate.params import ValidateParams
from onnxport.validate.report import Report
from onnxport.validate.sessions import Oriented
from onnxport.validate.translation.proof import Proof
from onnxport.validate.translation.tflite import artefact
from onnxport.validate.translation.tflite.artefact import prove_tflite
from tests.validate.models import parsed
from tests.validate.translation import mlpackage_faults
from tests.validate.translation.tflite_faults import constant, operators, put

_BODY = "c = Conv <pads = [1, 1, 1, 1]> (x, w) n = BatchNormalization (c, scale, bias, mean, variance)"
# Every pixel is 0 or 1: one beside the limit goes with the rounding of the weights.
THRESHOLD = f"{_BODY} k = Greater (n, limit) y = Where (k, one, zero)"
# Nothing that is fed gets beyond the limit.
SILENT = f"{_BODY} m = Sub (n, vast) y = Relu (m)"


def save(body: str, path: Path, size: str) -> Path:
    draw = np.random.default_rng(0)
    model = parsed(f"g (float[1, 16, 32, {size}] x) => (float[1, 24, 32, {size}] y) {{ {body} }}")
    constants: dict[str, Any] = {
        "w": draw.standard_normal((24, 16, 3, 3)) / 12,
        "scale": draw.uniform(0.5, 2, 24),
        "bias": draw.standard_normal(24),
        "mean": draw.standard_normal(24) / 10,
        "variance": draw.uniform(0.5, 2, 24),
        "limit": 0.3,
        "one": 1,
        "zero": 0,
        "vast": 1e6,
    }
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(each, np.float32), name)
        for name, each in constants.items()
        if name in body
    )
    onnx.save(model, path)
    return path


SUFFIXES = {"tflite": ".tflite", "coreml": ".mlpackage"}


def judged(body: str, folder: Path, size: str = "32", to: str = "tflite") -> Report:
    made = onnxport.convert_model(
        save(body, folder / "m.onnx", size), to, folder / f"m{SUFFIXES[to]}", precision="fp16", latency=False
    )
    return made.report


@pytest.mark.parametrize("to", SUFFIXES)
@pytest.mark.parametrize("body", [THRESHOLD, SILENT], ids=["threshold", "silent"])
def test_what_hangs_on_roundings_is_proven_node_for_node(body: str, to: str, tmp_path: Path) -> None:
    report = judged(body, tmp_path, to=to)
    assert report.verdict == "proven", report.reason
    assert "the file's own operators and numbers" in report.judgements[0].against
    assert any(each.question == "translation" for each in report.judgements)


def test_each_size_that_was_fed_is_compared_node_for_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, ...]] = []

    def noted(source: Model, path: Path, sets: list[Feeds], **options: Any) -> Proof:
        sizes.append(sets[0]["x"].shape)
        return prove_tflite(source, path, sets, **options)

    monkeypatch.setattr(artefact, "prove_tflite", noted)
    report = judged(THRESHOLD, tmp_path, "W")
    assert report.verdict == "proven", report.reason
    assert set(sizes) == {each.shapes["x"] for each in report.fed}
    assert len(sizes) > 1


@pytest.mark.parametrize("to", SUFFIXES)
@pytest.mark.parametrize("body", [THRESHOLD, SILENT], ids=["threshold", "silent"])
def test_a_weight_that_no_rounding_explains_is_not(body: str, to: str, tmp_path: Path) -> None:
    judged(body, tmp_path, to=to)
    right, wrong = (tmp_path / f"{name}{SUFFIXES[to]}" for name in ("m", "wrong"))
    if to == "tflite":
        put(_double_a_weight, right, wrong)
    else:
        mlpackage_faults.put(mlpackage_faults.weight_off, right, wrong)
    report = onnxport.validate_model(tmp_path / "m.onnx", wrong)
    assert report.verdict == "not equivalent"


def test_kernels_are_held_to_the_numbers_of_the_file(tmp_path: Path) -> None:
    judged(THRESHOLD, tmp_path)
    wrong = put(_double_a_weight, tmp_path / "m.tflite", tmp_path / "wrong.tflite")
    params = ValidateParams()
    graph = Model.load(tmp_path / "m.onnx")
    with ReferenceRun(Artifact.open(tmp_path / "m.onnx"), params) as run:
        found = {}
        for path in (tmp_path / "m.tflite", wrong):
            with (
                TfliteRuntime(path) as runtime,
                LiftedReference(run.reference, lift_tflite(tmp_path / "m.tflite", graph)) as own,
            ):
                fidelity = Fidelity(run.reference, own, params)
                for each in run.reference.sets:
                    feeds, answers = run.reference.answers(each)
                    fidelity.add(each, feeds, answers, Oriented(runtime).run(feeds))
                found[path.stem] = fidelity.judgement().verdict
    assert found == {"m": "proven", "wrong": "not equivalent"}


def test_a_package_in_float32_still_has_its_own_numbers(tmp_path: Path) -> None:
    """Without rounding on the way, a changed weight moves the answers, and a right package's are the source's."""
    judged(THRESHOLD, tmp_path, to="coreml")
    right, wrong = tmp_path / "m.mlpackage", tmp_path / "wrong.mlpackage"
    mlpackage_faults.put(mlpackage_faults.weight_off, right, wrong)
    params = ValidateParams()
    with ReferenceRun(Artifact.open(tmp_path / "m.onnx"), params) as run:
        found = {}
        for path in (right, wrong):
            with (
                MilRuntime(path, rounds=False) as wide,
                LiftedReference(run.reference, lift_mlpackage(right)) as own,
            ):
                fidelity = Fidelity(run.reference, own, params)
                for each in run.reference.sets:
                    feeds, answers = run.reference.answers(each)
                    fidelity.add(each, feeds, answers, Oriented(wide).run(feeds))
                found[path.stem] = fidelity.judgement().verdict
    assert found == {"m": "proven", "wrong": "not equivalent"}


def _double_a_weight(model: Any, _: object) -> None:
    (convolution,) = operators(model, "CONV_2D")
    widened = next(
        each for each in operators(model, "DEQUANTIZE") if each.outputs[0] == convolution.inputs[1]
    )
    weights = constant(model, widened.inputs[0], np.float16)
    weights[np.argmax(np.abs(weights))] *= 2


@pytest.mark.parametrize(("moved", "verdict"), [(0.0, "proven"), (0.05, "not equivalent")])
def test_a_bias_and_a_code_of_positions_may_be_stored_as_their_sum(
    moved: float, verdict: str, tmp_path: Path
) -> None:
    """A transformer adds both to one product; the file holds one constant of every position."""
    draw = np.random.default_rng(0)
    shapes = {"w": (32, 64), "b": (64,), "places": (1, 6, 64)}
    constants = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for name, shift in (("m", 0.0), ("other", moved)):
        model = parsed(
            "g (float[N, 6, 32] x) => (float[N, 6, 64] y) { p = MatMul (x, w) a = Add (b, p) y = Add (a, places) }"
        )
        for key, values in constants.items():
            given = values + np.float32(shift) if key == "places" else values
            model.graph.initializer.append(numpy_helper.from_array(given, key))
        onnx.save(model, tmp_path / f"{name}.onnx")
    made = tmp_path / "m.tflite"
    onnxport.convert_model(tmp_path / "m.onnx", "tflite", made, precision="fp16", latency=False)
    report = onnxport.validate_model(tmp_path / "other.onnx", made)
    translation = next(each for each in report.judgements if each.question == "translation")
    assert translation.verdict == verdict, translation.reason

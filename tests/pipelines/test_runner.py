"""The runner with stages of the tests' own: what it promises to pipelines that are still to come."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from pydantic import BaseModel

from onnxport.core.errors import CannotConvertError, InputError, UsageError
from onnxport.formats.artifact import Artifact, Format
from onnxport.formats.model import Model
from onnxport.pipelines import runner
from onnxport.pipelines.registry import TARGETS
from onnxport.pipelines.runner.jobs import Job, Step, conversion
from onnxport.pipelines.stages import Product, Stage, Work, Worker
from onnxport.validate.params import ValidateParams

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"

CALLS: list[str] = []
SEEN: list[Work] = []


class ScaleParams(BaseModel):
    factor: float = 1.0


@contextmanager
def scale() -> Iterator[Worker]:
    """Multiplies all weights, which is wrong for any factor but 1."""
    CALLS.append("start scale")

    def make(model: Model, params: ScaleParams, work: Work) -> Product:
        CALLS.append("scale")
        SEEN.append(work)
        copy = model.clone()
        for value in copy.graph.initializers.values():
            assert value.const_value is not None
            array = value.const_value.numpy() * np.float32(params.factor)
            value.const_value = ir.tensor(array.astype(np.float32), name=value.name)
        return Product(copy.save(work.output), notes=("scaled",), facts={"factor": params.factor})

    yield make
    CALLS.append("end scale")


@contextmanager
def failing() -> Iterator[Worker]:
    def make(model: Model, params: ScaleParams, work: Work) -> Product:
        work.output.write_bytes(b"half a file")
        raise ZeroDivisionError("on purpose")

    yield make


def stage(worker: str, gives: Format = "onnx") -> Stage:
    return Stage(
        worker, ScaleParams, takes="onnx", gives=gives, libraries=("onnx",), worker=f"{__name__}:{worker}"
    )


@pytest.fixture(autouse=True)
def _forget() -> None:
    CALLS.clear()
    SEEN.clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    shutil.copy(DIGITS, path)
    return path


def job(source: Path, *steps: Step, output: str, **settings: Any) -> Job:
    settings = {"validation": ValidateParams(samples=1)} | settings
    return Job(Artifact.open(source), steps, source.with_name(output), **settings)


def to_ort() -> Step:
    return Step(TARGETS["ort"], TARGETS["ort"].params())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_steps_run_one_after_the_other(source: Path) -> None:
    report = runner.run(job(source, Step(stage("scale"), ScaleParams()), to_ort(), output="out.ort"), "test")
    (artifact,) = report.artifacts
    assert report.passed
    assert artifact.target == "ort"
    assert artifact.notes[0] == "scaled"
    assert artifact.facts["factor"] == 1.0
    assert artifact.facts["nodes"] > 0
    assert CALLS == ["start scale", "scale", "end scale"]
    assert names(source.parent) == {"model.onnx", "out.ort", "out.required_operators.config"}


def test_wrong_step_is_found_by_the_verdict_on_the_last(source: Path) -> None:
    wrong = Step(stage("scale"), ScaleParams(factor=2.0))
    report = runner.run(job(source, wrong, to_ort(), output="out.ort"), "test")
    assert not report.passed
    assert report.exit_code == 1
    assert report.artifacts[0].path is None
    assert names(source.parent) == {"model.onnx"}


def test_workers_start_before_the_model_is_read(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Model.load

    def recorded(path: Path) -> Model:
        CALLS.append("load")
        return load(path)

    monkeypatch.setattr(Model, "load", recorded)
    runner.run(job(source, Step(stage("scale"), ScaleParams()), output="out.onnx"), "test")
    assert CALLS[:2] == ["start scale", "load"]


def test_failing_step_leaves_nothing(source: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        runner.run(job(source, Step(stage("failing"), ScaleParams()), output="out.onnx"), "test")
    assert names(source.parent) == {"model.onnx"}


def test_manifest_says_what_the_artefact_is(source: Path) -> None:
    runner.run(job(source, Step(stage("scale"), ScaleParams(factor=1)), output="out.onnx"), "test")
    manifest = SEEN[0].manifest
    assert manifest.source == Artifact.open(source).digest()
    assert manifest.options == {"scale": {"factor": 1.0}}
    assert set(manifest.made_by) == {"onnxport", "onnx"}
    assert manifest.validation == "required"


def rewriting(worker: str) -> Step:
    return Step(replace(stage(worker), rewrites=True), ScaleParams(factor=2.0))


def test_a_wrong_pass_is_skipped_and_named_once_the_verdict_is_bad(source: Path) -> None:
    report = runner.run(job(source, rewriting("careful"), output="out.onnx"), "test")
    assert report.passed
    assert CALLS == ["unchecked", "checked"]
    (note,) = [note for note in report.artifacts[0].notes if "was skipped" in note]
    assert note.startswith("pass 'double' was skipped: ")
    assert "logits" in note
    assert names(source.parent) == {"model.onnx", "out.onnx"}


def test_no_right_model_pays_for_checking_passes(source: Path) -> None:
    step = replace(rewriting("careful"), params=ScaleParams(factor=1.0))
    assert runner.run(job(source, step, output="out.onnx"), "test").passed
    assert CALLS == ["unchecked"]


def test_a_fault_that_is_no_passs_stays_a_fault(source: Path) -> None:
    report = runner.run(job(source, rewriting("scale"), output="out.onnx"), "test")
    assert report.exit_code == 1
    assert names(source.parent) == {"model.onnx"}


@contextmanager
def careful() -> Iterator[Worker]:
    """Doubles a weight, unless it may ask the judge and learns that this is wrong."""

    def make(model: Model, params: ScaleParams, work: Work) -> Product:
        CALLS.append("checked" if work.equivalence else "unchecked")
        changed = model.clone()
        value = next(iter(changed.graph.initializers.values()))
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy() * np.float32(params.factor), name=value.name)
        reason = work.equivalence(changed) if work.equivalence else None
        if reason is None:
            return Product(changed.save(work.output))
        return Product(model.save(work.output), notes=(f"pass 'double' was skipped: {reason}",))

    yield make


def test_a_model_that_needs_the_wrong_pass_keeps_the_verdict(source: Path) -> None:
    report = runner.run(job(source, rewriting("dependent"), output="out.onnx"), "test")
    assert report.exit_code == 1
    assert report.artifacts[0].report is not None
    assert "logits" in str(report.artifacts[0].report)
    assert names(source.parent) == {"model.onnx"}


@contextmanager
def dependent() -> Iterator[Worker]:
    """Doubles a weight, and refuses the model where that is no longer allowed."""
    with careful() as make:

        def need(model: Model, params: ScaleParams, work: Work) -> Product:
            product = make(model, params, work)
            if product.notes:
                raise CannotConvertError("1 of 2 nodes has no equivalent")
            return product

        yield need


def test_nobody_judges_where_validation_is_waived(source: Path) -> None:
    report = runner.run(
        job(source, Step(stage("scale"), ScaleParams(factor=2.0)), output="out.onnx", validation=None), "test"
    )
    assert report.passed
    assert report.artifacts[0].report.verdict == "unproven"
    assert SEEN[0].equivalence is None
    assert SEEN[0].manifest.validation == "skipped"
    assert "onnxruntime" not in report.environment


def test_reference_that_cannot_be_run_is_reported(source: Path) -> None:
    params = ValidateParams(inputs=source.with_name("nowhere"))
    with pytest.raises(InputError, match="nowhere"):
        runner.run(
            job(source, Step(stage("scale"), ScaleParams()), output="out.onnx", validation=params), "test"
        )
    assert names(source.parent) == {"model.onnx"}


def test_timings_add_up(source: Path) -> None:
    report = runner.run(job(source, to_ort(), output="out.ort"), "test")
    timings = report.artifacts[0].timings
    assert [timing.step for timing in timings] == ["load", "convert", "validate", "reference"]
    assert [timing.step for timing in timings if timing.parallel] == ["reference"]
    assert sum(timing.seconds for timing in timings if not timing.parallel) <= report.seconds


def test_size_and_digest_are_those_of_the_files(source: Path) -> None:
    report = runner.run(job(source, to_ort(), output="out.ort"), "test")
    (artifact,) = report.artifacts
    assert artifact.path is not None
    main, config = Path(artifact.path), Path(artifact.companions[0].path)
    assert artifact.size == main.stat().st_size + config.stat().st_size
    assert artifact.companions[0].size == config.stat().st_size
    assert artifact.digest == Artifact(main, "ort", (config,)).digest()
    assert artifact.ratio == round(artifact.size / source.stat().st_size, 4)
    assert report.source.digest == Artifact.open(source).digest()


@pytest.mark.parametrize(
    ("to", "output", "says"),
    [("ort", "out.tflite", "does not end in .ort"), ("tflite", "model.onnx", "does not end in .tflite")],
)
def test_output_that_cannot_be_meant(to: str, output: str, says: str, source: Path) -> None:
    with pytest.raises(UsageError, match=says):
        conversion(source, to, source.with_name(output), {})


def test_source_of_another_format(source: Path) -> None:
    other = source.with_suffix(".ort")
    other.write_bytes(b"ORTM")
    with pytest.raises(InputError, match="is in ort format"):
        conversion(other, "tflite", None, {})


def test_external_weights_are_shared_with_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both threads read them at once; onnx-ir maps each file's part once, and asserts it."""
    right = ir.ExternalTensor._load

    def slow(tensor: ir.ExternalTensor) -> None:
        time.sleep(0.2)
        right(tensor)

    monkeypatch.setattr(ir.ExternalTensor, "_load", slow)
    ir.save(ir.load(DIGITS), tmp_path / "m.onnx", external_data="m.data")
    report = runner.run(conversion(tmp_path / "m.onnx", "tflite", None, {}), "convert")
    assert report.passed

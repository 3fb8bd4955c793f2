"""The forms of a run's report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from onnxport.core.errors import InputError, NotProvenError, UsageError
from onnxport.reports import FORMATS, phrases, saving
from onnxport.reports.phrases import human_size
from onnxport.reports.run.terminal import artifact_line
from onnxport.reports.run_report import ArtifactRecord, RunReport, SourceRecord
from onnxport.validate.report import InputSet, Judgement, OutputReport, Report, Side


def output(name: str, max_abs: float, scale: float) -> OutputReport:
    return OutputReport(
        name=name,
        dtype="float32",
        shape=(1, 10),
        verdict="proven",
        rule="within float32 noise",
        max_abs=max_abs,
        mean_abs=max_abs / 2,
        scale=scale,
        noise=0.0,
        tolerance=1e-5,
        sqnr_db=None,
        mismatches=0,
        elements=10,
    )


def run_report(*outputs: OutputReport, path: str | None = "model.tflite", **changes: Any) -> RunReport:
    side = Side(path="model.onnx", format="onnx", runtime="ONNX Runtime", size=4_747_000, digest="d")
    fed = tuple(
        InputSet(label=str(batch), shapes={"x": (batch, 3, 8, 8), "k": (5,)}, source="generated")
        for batch in (1, 3, 1, 3, 1, 3)
    )
    judgement = Judgement(
        question="fidelity",
        verdict="proven",
        reason="within float32 noise",
        against="the reference itself",
        outputs=outputs,
    )
    report = Report(
        reference=side,
        candidate=side.model_copy(update={"path": "model.tflite", "format": "tflite"}),
        verdict="proven",
        reason="within float32 noise",
        judgements=(judgement,),
        fed=fed,
    ).model_copy(update=changes)
    artifact = ArtifactRecord(
        path=path,
        target="tflite",
        format="tflite",
        size=4_700_000,
        ratio=0.99,
        digest="e",
        companions=(),
        report=report,
        timings=(),
    )
    source = SourceRecord(path="model.onnx", format="onnx", size=4_747_000, digest="d")
    return RunReport(
        command="convert", source=source, artifacts=(artifact,), seconds=1.94, environment={}, exit_code=0
    )


def line_of(report: RunReport) -> str:
    return artifact_line(report.artifacts[0], report.seconds)


def test_line_is_that_of_the_style_guide() -> None:
    report = run_report(output("boxes", 1e-5, 100.0), output("scores", 3.1e-7, 1.0))
    assert line_of(report) == (
        "model.tflite   4.7 MB (0.99x)   proven: within float32 noise   worst 3.1e-07 of scale at 'scores'   "
        "6 input sets, batch 1 and 3   1.9 s"
    )


def test_line_without_difference_says_so() -> None:
    assert "   identical to the last bit   " in line_of(run_report(output("scores", 0.0, 1.0)))


def test_line_of_an_unproven_artefact_has_no_figures() -> None:
    report = run_report(verdict="unproven", reason="validation was switched off", fed=())
    assert line_of(report) == "model.tflite   4.7 MB (0.99x)   unproven: validation was switched off   1.9 s"


def test_line_of_a_dropped_artefact_keeps_its_name_and_has_no_size() -> None:
    report = run_report(path=None, verdict="inconclusive", reason="'y': it does not vary", fed=())
    assert line_of(report) == "model.tflite   not kept   inconclusive   1.9 s"


def test_line_of_a_failed_proof_leaves_the_reason_to_the_error() -> None:
    report = run_report(verdict="not equivalent", reason="'y': 3 of 10 elements differ", fed=())
    assert line_of(report) == "model.tflite   4.7 MB (0.99x)   not equivalent   1.9 s"


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (3 * 10**9, "3.0 GB")],
)
def test_sizes(size: int, shown: str) -> None:
    assert human_size(size) == shown


def test_report_file_reads_back(tmp_path: Path) -> None:
    report = run_report(output("scores", 3.1e-7, 1.0))
    path = tmp_path / "run.json"
    with saving([path]) as save:
        save(report)
    assert RunReport.model_validate_json(path.read_text()) == report
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_report_with_infinite_figures_is_json(tmp_path: Path) -> None:
    report = run_report(output("scores", math.inf, 1.0))
    path = tmp_path / "run.json"
    with saving([path]) as save:
        save(report)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert RunReport.model_validate_json(path.read_text()) == report


def test_unknown_form_is_refused_before_the_work(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"known suffixes are \.html, \.json"),
        saving([tmp_path / "run.docx"]),
    ):
        pytest.fail("the work began")


@pytest.mark.parametrize("error", [ZeroDivisionError(), UsageError("no such option")], ids=repr)
def test_run_that_never_was_writes_no_report(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)), saving([tmp_path / f"run{suffix}" for suffix in FORMATS]):
        raise error
    assert not list(tmp_path.iterdir())


def test_failed_run_is_reported_in_the_forms_that_can(tmp_path: Path) -> None:
    paths = [tmp_path / f"run{suffix}" for suffix in FORMATS]

    def fail_after_the_report() -> None:
        with saving(paths, "convert") as save:
            save(run_report())
            raise InputError("model.onnx is damaged")

    with pytest.raises(InputError):
        fail_after_the_report()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.md", "run.xml"]
    assert all("model.onnx is damaged" in file.read_text() for file in tmp_path.iterdir())


def test_failed_run_leaves_older_reports_of_other_forms_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises(InputError), saving([path]):
        raise InputError("model.onnx is damaged")
    assert path.read_text() == "old"


def refusal(report: RunReport) -> str:
    with pytest.raises(NotProvenError) as caught:
        report.check()
    return caught.value.fix


def own() -> tuple[InputSet, ...]:
    return (InputSet(label="a.npz", shapes={"x": (1,)}, source="samples"),)


def test_users_with_own_inputs_are_not_advised_to_give_some() -> None:
    assert "--inputs DIR" in refusal(run_report(verdict="inconclusive"))
    assert "--inputs" not in refusal(run_report(verdict="inconclusive", fed=own()))
    assert "--accept-inconclusive" in refusal(run_report(verdict="inconclusive", fed=own()))


def test_a_loss_on_generated_inputs_is_said_to_be_on_these() -> None:
    said = "this is on generated inputs only; give your own with --inputs DIR"
    assert refusal(run_report(verdict="over budget")) == said
    assert refusal(run_report(verdict="over budget", fed=own())) == ""


def test_title_of_a_loss_does_not_claim_equality() -> None:
    report = run_report(output("y", 0.1, 1.0)).artifacts[0].report
    quality = report.judgements[0].model_copy(update={"question": "quality"})
    title = phrases.summary(report.model_copy(update={"judgements": (quality,)}))
    assert "computes" not in title
    assert "no budget was given" in title


def test_title_of_both_questions_names_the_rounding() -> None:
    report = run_report(output("y", 0.1, 1.0)).artifacts[0].report
    (fidelity,) = report.judgements
    half = report.candidate.model_copy(update={"precision": "float16"})
    both = (fidelity, fidelity.model_copy(update={"question": "quality"}))
    title = phrases.summary(report.model_copy(update={"judgements": both, "candidate": half}))
    assert title.startswith("model.tflite computes what model.onnx computes with float16 rounding")

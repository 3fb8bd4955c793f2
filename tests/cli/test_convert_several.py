"""`onnxport convert` with several targets, precisions and models."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

import onnxport
from fixtures import graphs
from onnxport.core.errors import PipelineFailedError, UsageError
from onnxport.formats.model import Model
from onnxport.reports.pipeline_report import PipelineReport
from onnxport.validate.reference import Reference
from tests.cli.sandbox import DIGITS, Sandbox

MATRIX = ("--to", "tflite,ort", "--precision", "fp32,fp16", "--no-latency")


def verdicts(report: PipelineReport) -> dict[str, str]:
    return {cell.name: cell.verdict for cell in report.cells}


def test_a_matrix_has_the_bytes_and_verdicts_of_single_commands(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", *MATRIX, "-o", "made", "--json")
    assert outcome.code == 0, outcome.stderr
    report = PipelineReport.model_validate(outcome.document)
    names = ["tflite/fp32", "tflite/fp16", "ort/fp32", "ort/fp16"]
    assert [node.name for node in report.nodes] == [f"model/{name}" for name in names]
    for node in report.nodes:
        assert node.run is not None
        (record,) = node.run.artifacts
        target, precision = node.name.split("/")[1:]
        single = sandbox.folder / f"single.{target}"
        options = () if (target, precision) == ("ort", "fp32") else ("--precision", precision)
        alone = sandbox.run(
            "convert", "model.onnx", "--to", target, *options, "--no-latency", "--json", "-o", single
        ).document["artifacts"][0]
        assert record.path is not None
        assert (sandbox.folder / record.path).read_bytes() == single.read_bytes()
        together = record.model_dump(mode="json")["report"]
        for part in ("verdict", "reason", "judgements", "fed"):
            assert together[part] == alone["report"][part], (node.name, part)
    made = {path.name for path in (sandbox.folder / "made").iterdir()}
    assert {"model.tflite", "model_fp16.tflite", "model.ort", "model_fp16.ort"} <= made


def test_a_line_per_artefact_in_the_order_of_the_options(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", "--to", "tflite")
    assert outcome.code == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["model.ort", "model.tflite"]
    assert all("proven: " in line for line in lines)
    assert outcome.stderr.count("only generated inputs were fed") == 1, "each note once"


def test_several_models_go_to_one_folder_or_beside_themselves(sandbox: Sandbox) -> None:
    other = sandbox.folder / "elsewhere" / "other.onnx"
    other.parent.mkdir()
    other.write_bytes(DIGITS.read_bytes())
    assert sandbox.run("convert", "model.onnx", other, "--to", "ort", "-o", "made").code == 0
    assert {path.suffix for path in (sandbox.folder / "made").iterdir()} == {".ort", ".config"}
    assert len(list((sandbox.folder / "made").glob("*.ort"))) == 2
    assert sandbox.run("convert", "model.onnx", other, "--to", "ort").code == 0
    assert (sandbox.folder / "model.ort").is_file()
    assert other.with_suffix(".ort").is_file()


def test_one_failure_leaves_the_others_and_the_worst_code_counts(sandbox: Sandbox) -> None:
    onnx.save(graphs.two_unsupported(), sandbox.folder / "strings.onnx")
    # No generated text moves its output.
    outcome = sandbox.run(
        "convert", "strings.onnx", "--to", "tflite,ort", "-o", "made", "--accept-inconclusive"
    )
    assert outcome.code == 3
    assert "error: strings/tflite: " in outcome.stderr
    assert "'pre/join'" in outcome.stderr
    assert outcome.stderr.rstrip().endswith("exit 3")
    assert (sandbox.folder / "made" / "strings.ort").is_file()
    assert not (sandbox.folder / "made" / "strings.tflite").exists()
    assert outcome.stdout.startswith(os.path.join("made", "strings.ort"))
    outcome = sandbox.run(
        "convert", "strings.onnx", "--to", "tflite", "--precision", "fp32,fp16", "-o", "none/in"
    )
    assert outcome.code == 3
    assert not (sandbox.folder / "none").exists(), "nothing was made there"


HIDDEN = """import importlib.metadata as metadata
found = metadata.version
def version(name):
    if name == 'litert-converter':
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.version = version
"""


@pytest.mark.parametrize(
    ("code", "says", "options"),
    [
        (2, "'onx' is not one of", ("--to", "ort,onx")),
        (2, "'coreml', 'ort'; did you mean 'tflite'?", ("--to", "tflit")),
        (2, "'keep', 'nhwc'; did you mean 'keep'?", ("--to", "tflite", "--layout", "kep")),
        (2, "'fp8' is not one of", ("--to", "ort,tflite", "--precision", "fp16,fp8")),
        (
            2,
            "--precision: int8-dynamic is not allowed",
            ("--to", "tflite,ort", "--precision", "int8-dynamic"),
        ),
        (2, "has no option 'minimum_target'", ("--to", "tflite,ort", "--minimum-target", "iOS16")),
        (2, "the target ort is given twice", ("--to", "ort,ort")),
        (2, "the output model.onnx is a file", ("--to", "ort,tflite", "-o", "model.onnx")),
        (2, "has the name of one artefact", ("--to", "ort,tflite", "-o", "model.ort")),
        (2, "has no 'delegate'", ("--to", "tflite,ort", "--candidate-runtime", "delegate=none")),
        (2, "--report-tensors writes", ("--to", "tflite,ort", "--report-tensors", "t.npz")),
        (4, "missing.onnx", ("missing.onnx", "--to", "ort,tflite")),
    ],
)
def test_everything_is_checked_before_anything_starts(
    code: int, says: str, options: tuple[str, ...], sandbox: Sandbox
) -> None:
    before = sandbox.contents()
    outcome = sandbox.run("convert", "model.onnx", *options)
    assert (outcome.code, says in outcome.stderr) == (code, True), outcome.stderr
    assert "..." not in outcome.stderr, "a step began"
    assert sandbox.contents() == before


def test_a_missing_library_of_one_target_is_told_before_the_others_start(sandbox: Sandbox) -> None:
    sandbox.patch(HIDDEN)
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort,tflite")
    assert outcome.code == 5
    assert "litert-converter" in outcome.stderr
    assert not (sandbox.folder / "model.ort").exists()


def test_models_of_one_name_need_folders_of_their_own(sandbox: Sandbox) -> None:
    twin = sandbox.folder / "twin" / "model.onnx"
    twin.parent.mkdir()
    twin.write_bytes(DIGITS.read_bytes())
    outcome = sandbox.run("convert", "model.onnx", twin, "--to", "ort", "-o", "made")
    assert outcome.code == 2
    assert "is given twice" in outcome.stderr


def test_an_option_of_one_target_applies_to_that_one(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "tflite,ort", "--layout", "nhwc")
    assert outcome.code == 0, outcome.stderr
    plain = sandbox.folder / "plain.tflite"
    nhwc = sandbox.folder / "nhwc.tflite"
    assert sandbox.run("convert", "model.onnx", "--to", "tflite", "-o", plain).code == 0
    assert sandbox.run("convert", "model.onnx", "--to", "tflite", "--layout", "nhwc", "-o", nhwc).code == 0
    assert (sandbox.folder / "model.tflite").read_bytes() == nhwc.read_bytes() != plain.read_bytes()


def test_the_model_is_loaded_and_referenced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(DIGITS.read_bytes())
    loaded, prepared = [], []
    load, prepare = Model.load.__func__, Reference.prepare  # type: ignore[attr-defined]

    def counted(cls: type[Model], path: str) -> Model:
        loaded.append(Path(path))
        found: Model = load(cls, path)
        return found

    def counted_too(self: Reference) -> None:
        prepared.append(self)
        prepare(self)

    monkeypatch.setattr(Model, "load", classmethod(counted))
    monkeypatch.setattr(Reference, "prepare", counted_too)
    results = onnxport.convert_model(model, ["tflite", "ort"], tmp_path / "made", precision=["fp32", "fp16"])
    assert [result.path.name for result in results] == [
        "model.tflite",
        "model_fp16.tflite",
        "model.ort",
        "model_fp16.ort",
    ]
    assert all(result.report.passed and result.path.is_file() for result in results)
    assert loaded.count(model) == 1
    assert len(prepared) == 1


def test_from_python_a_failure_has_the_report_of_all(tmp_path: Path) -> None:
    model = tmp_path / "strings.onnx"
    onnx.save(graphs.two_unsupported(), model)
    with pytest.raises(PipelineFailedError) as failed:
        onnxport.convert_model(model, ["tflite", "ort"], accept_inconclusive=True)
    assert failed.value.exit_code == 3
    assert verdicts(failed.value.report)["strings/tflite"] == "failed"
    assert model.with_suffix(".ort").is_file()
    with pytest.raises(UsageError, match="there is no target 'onx'"):
        onnxport.convert_model(model, ["ort", "onx"])

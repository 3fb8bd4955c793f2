"""`onnxport convert` and `onnxport validate` when all goes well."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess

import pytest

from onnxport.core import errors
from onnxport.reports.run_report import RunReport
from tests.cli.sandbox import Sandbox

TARGETS = ("tflite", "ort")


@pytest.mark.parametrize("target", TARGETS)
def test_conversion_is_one_line_and_files_beside_the_input(target: str, sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", target)
    assert outcome.code == errors.PROVEN, outcome.stderr
    # As in docs: name, size and ratio, verdict and rule, worst figure, what it was tried on, time.
    line = (
        rf"model\.{target}   \d+\.\d kB \(\d\.\d\dx\)   proven: .+   worst \d\.\de-\d+ of scale at 'logits'   "
        r"\d+ input sets, batch 1 and 3   \d+\.\d s\n"
    )
    assert re.fullmatch(line, outcome.stdout)
    companions = {"ort": {"model.required_operators.config"}}.get(target, set())
    assert {path.name for path in sandbox.folder.iterdir()} == {"model.onnx", f"model.{target}", *companions}
    assert not list(sandbox.temporary.iterdir())


@pytest.mark.parametrize("target", TARGETS)
def test_same_input_gives_the_same_bytes(target: str, sandbox: Sandbox) -> None:
    made = []
    for name in ("first", "second"):
        (sandbox.folder / name).mkdir()
        output = sandbox.folder / name / f"model.{target}"
        assert sandbox.run("convert", "model.onnx", "--to", target, "-o", output).code == errors.PROVEN
        made.append({path.name: path.read_bytes() for path in output.parent.iterdir()})
    assert made[0] == made[1]


def test_existing_output_is_replaced(sandbox: Sandbox) -> None:
    output = sandbox.folder / "model.ort"
    output.write_bytes(b"an artefact of yesterday")
    assert sandbox.run("convert", "model.onnx", "--to", "ort").code == errors.PROVEN
    assert output.read_bytes()[4:8] == b"ORTM"


def test_a_folder_gets_the_file_under_its_usual_name(sandbox: Sandbox) -> None:
    (sandbox.folder / "made").mkdir()
    assert sandbox.run("convert", "model.onnx", "--to", "ort", "-o", "made/").code == errors.PROVEN
    assert sandbox.run("optimize", "model.onnx", "-o", "made").code == errors.PROVEN
    assert {path.name for path in (sandbox.folder / "made").iterdir()} >= {
        "model.ort",
        "model_optimized.onnx",
    }


def test_json_is_the_run_report(sandbox: Sandbox) -> None:
    outcome = sandbox.run(
        "convert", "model.onnx", "--to", "tflite", "--json", "--samples", "2", "--seed", "7"
    )
    report = RunReport.model_validate(outcome.document)
    (artifact,) = report.artifacts
    assert (report.command, report.exit_code, outcome.code) == ("convert", 0, 0)
    assert report.source.size == sandbox.model.stat().st_size
    assert (artifact.path, artifact.size) == (
        "model.tflite",
        (sandbox.folder / "model.tflite").stat().st_size,
    )
    assert artifact.report.candidate.path == "model.tflite"
    assert artifact.report.verdict == "proven"
    assert [output.name for output in artifact.report.outputs] == ["logits"]
    assert {timing.step for timing in artifact.timings} >= {
        "load",
        "prepare",
        "convert",
        "validate",
        "reference",
    }
    assert artifact.facts["transposes"] <= 1
    assert {"python", "platform", "onnxport", "onnxruntime", "litert-converter"} <= set(report.environment)


def test_report_file_holds_what_json_prints(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", "--report", "run.json", "--json")
    assert outcome.code == errors.PROVEN
    assert json.loads((sandbox.folder / "run.json").read_text()) == outcome.document


def test_report_is_written_for_a_failed_proof_too(sandbox: Sandbox) -> None:
    sandbox.run("convert", "model.onnx", "--to", "ort", "--no-validate")
    wrong = ("validate", "model.onnx", "model.ort", "--rtol", "0", "--atol", "0", "--report", "run.json")
    assert sandbox.run(*wrong).code == errors.NOT_EQUIVALENT
    assert json.loads((sandbox.folder / "run.json").read_text())["exit_code"] == errors.NOT_EQUIVALENT


def test_unproven_artefact_says_so_everywhere(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", "--no-validate", "--json")
    assert outcome.code == errors.PROVEN
    assert outcome.document["artifacts"][0]["report"]["verdict"] == "unproven"
    inspected = sandbox.run("inspect", "model.ort", "--json").document
    assert inspected["manifest"]["validation"] == "skipped"


@pytest.mark.parametrize("target", TARGETS)
def test_artefact_carries_its_provenance(target: str, sandbox: Sandbox) -> None:
    made = sandbox.run("convert", "model.onnx", "--to", target, "--json").document
    manifest = sandbox.run("inspect", f"model.{target}", "--json").document["manifest"]
    assert manifest["validation"] == "required"
    assert manifest["source"] == made["source"]["digest"]
    assert set(manifest["options"]) == {target}
    assert manifest["made_by"]["onnxport"] == made["environment"]["onnxport"]


def test_validate_takes_any_two_formats(sandbox: Sandbox) -> None:
    for target in TARGETS:
        assert sandbox.run("convert", "model.onnx", "--to", target).code == errors.PROVEN
    for pair in (
        ("model.onnx", "model.tflite"),
        ("model.ort", "model.tflite"),
        ("model.tflite", "model.onnx"),
    ):
        outcome = sandbox.run("validate", *pair)
        assert outcome.code == errors.PROVEN, outcome.stderr
        assert outcome.stdout.startswith(f"{pair[1]}   ")


def test_shape_fixes_the_batch(sandbox: Sandbox) -> None:
    fixed = sandbox.run("convert", "model.onnx", "--to", "tflite", "--shape", "image=2,1,8,8")
    assert fixed.code == errors.PROVEN, fixed.stderr
    (port,) = sandbox.run("inspect", "model.tflite", "--json").document["inputs"]
    assert port["shape"] == [2, 1, 8, 8]


def test_quiet_says_nothing(sandbox: Sandbox) -> None:
    outcome = sandbox.run("convert", "model.onnx", "--to", "ort", "--quiet")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (errors.PROVEN, "", "")


def test_progress_is_plain_lines_where_there_is_no_terminal(sandbox: Sandbox) -> None:
    stderr = sandbox.run("convert", "model.onnx", "--to", "ort").stderr
    steps = [line for line in stderr.splitlines() if not line.startswith("note: ")]
    assert steps == ["load ...", "convert ...", "validate ..."]


def test_progress_on_a_terminal_leaves_the_result_alone(sandbox: Sandbox) -> None:
    pty = pytest.importorskip("pty")
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        sandbox.command("convert", "model.onnx", "--to", "ort"),
        cwd=sandbox.folder,
        env=sandbox.environment | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    )
    os.close(terminal)
    shown = read_terminal(controller)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == errors.PROVEN
    assert "convert" in shown
    assert "\x1b[2K" in shown, "no line that is drawn again"
    assert stdout.startswith("model.ort   ")
    assert stdout.count("\n") == 1


def read_terminal(controller: int) -> str:
    """All that is written to a terminal until its last writer is gone."""
    written = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while data := os.read(controller, 4096):
            written += data
    os.close(controller)
    return written.decode()


@pytest.mark.parametrize("redirection", ["", "2>&1"])
def test_reader_that_goes_away_changes_nothing(redirection: str, sandbox: Sandbox) -> None:
    command = shlex.join(sandbox.command("convert", "model.onnx", "--to", "ort", "--report", "run.json"))
    piped = f"{{ {command} {redirection}; echo $? > code; }} | true"
    done = subprocess.run(
        ["sh", "-c", piped],
        cwd=sandbox.folder,
        env=sandbox.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (sandbox.folder / "code").read_text() == "0\n"
    assert "BrokenPipe" not in done.stderr
    assert (sandbox.folder / "model.ort").exists()
    assert (sandbox.folder / "run.json").exists()


def test_no_telemetry(sandbox: Sandbox) -> None:
    """ONNX Runtime keeps a device number in the home folder for its reports."""
    home = sandbox.folder.parent / "home"
    home.mkdir()
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "CI"):
        sandbox.environment.pop(variable, None)
    sandbox.environment["HOME"] = str(home)
    assert sandbox.run("convert", "model.onnx", "--to", "ort").code == errors.PROVEN
    assert not list(home.rglob("*"))

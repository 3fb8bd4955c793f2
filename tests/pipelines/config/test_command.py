"""A pipeline's file through the installed command: refused before anything is written, and run from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.sandbox import Sandbox

BAD = """\
version: 1
model: {model}
targets:
  phone: {{to: tflite, precisoin: fp16}}
  server: {{to: ort, level: al, output: ../x.ort}}
"""
METRIC = """\
import onnxport

@onnxport.metric(better="higher")
def sets(reference, candidate):
    return 1.0
"""


def test_refused_file_leaves_nothing(sandbox: Sandbox) -> None:
    (sandbox.folder / "pipeline.yaml").write_text(BAD.format(model="model.onnx"))
    before = sandbox.contents()
    outcome = sandbox.run("run", "pipeline.yaml")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr == (
        "error: pipeline.yaml has 3 faults:\n"
        "  pipeline.yaml:4, targets.phone.precisoin: converting to tflite has no option 'precisoin'; did you mean "
        "'precision'?\n"
        "  pipeline.yaml:5, targets.server.level: 'al' is not valid; give 'disable', 'basic', 'extended' or 'all'\n"
        "  pipeline.yaml:5, targets.server.output: '../x.ort' lies outside of the pipeline's folder: a run writes only "
        "below it; give a relative path without ..\n"
        "exit 2\n"
    )
    assert sandbox.contents() == before


def test_missing_model_outweighs_the_other_faults_and_all_are_in_the_document(sandbox: Sandbox) -> None:
    (sandbox.folder / "pipeline.yaml").write_text(BAD.format(model="nowhere.onnx"))
    before = sandbox.contents()
    outcome = sandbox.run("run", "pipeline.yaml", "--json")
    assert (outcome.code, outcome.document["exit_code"]) == (4, 4)
    found = outcome.document["error"]["faults"]
    assert [(fault["kind"], fault["exit_code"]) for fault in found] == [
        ("InputError", 4),
        *[("UsageError", 2), ("RefusedValue", 2), ("UsageError", 2)],
    ]
    assert sandbox.contents() == before


def test_modules_and_paths_start_from_the_folder_of_the_file(sandbox: Sandbox) -> None:
    project = sandbox.folder / "project"
    project.mkdir()
    sandbox.model.rename(project / "model.onnx")
    (project / "scores.py").write_text(METRIC)
    (project / "pipeline.yaml").write_text(
        "version: 1\nmodel: model.onnx\nvalidate: {metric: 'scores:sets', budget: {sets: 0.5}}\n"
        "targets: {server: {to: ort}}\n"
    )
    outcome = sandbox.run("run", "project/pipeline.yaml", "--json")
    assert (outcome.code, outcome.stderr) == (0, "")
    (cell,) = outcome.document["cells"]
    assert cell["path"] == str(Path("project") / "build" / "model" / "server.ort")
    assert (sandbox.folder / cell["path"]).is_file()
    again = json.loads(sandbox.run("run", "project/pipeline.yaml", "--json").stdout)
    assert [node["status"] for node in again["nodes"]] == ["cached"]

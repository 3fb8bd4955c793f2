"""`onnxport plan`: says what the run after it does, and leaves everything as it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.sandbox import Sandbox

PIPELINE = """
version: 1
model: model.onnx
validate: {samples: 1}
stages:
  lean: {use: optimize}
targets:
  server: {to: ort, from: lean}
  small: {to: tflite, precision: fp16}
"""


@pytest.fixture
def project(sandbox: Sandbox) -> Sandbox:
    sandbox.environment.pop("ONNXPORT_CACHE", None)
    (sandbox.folder / "pipeline.yaml").write_text(PIPELINE)
    return sandbox


def planned(sandbox: Sandbox, *arguments: str) -> dict[str, Any]:
    before = sandbox.contents()
    outcome = sandbox.run("plan", "pipeline.yaml", "--json", *arguments)
    assert outcome.code == 0, outcome.stderr
    assert sandbox.contents() == before
    document: dict[str, Any] = outcome.document
    return document


def nodes(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {node["name"]: (node["status"], node["why"]) for node in document["nodes"]}


def change(sandbox: Sandbox, old: str, new: str) -> None:
    text = (sandbox.folder / "pipeline.yaml").read_text()
    assert old in text
    (sandbox.folder / "pipeline.yaml").write_text(text.replace(old, new))


def test_plan_says_what_the_run_does_and_which_input_changed(project: Sandbox) -> None:
    fresh = planned(project)
    assert nodes(fresh) == {
        "model/lean": ("would run", "it is new"),
        "model/server": ("would run", "model/lean would run before"),
        "model/small": ("would run", "it is new"),
    }
    weights = project.model.stat().st_size
    assert [node["size_from"] for node in fresh["nodes"]] == ["estimate"] * 3
    assert fresh["nodes"][2]["size"] == pytest.approx(weights / 2, rel=0.01)
    assert fresh["memory"] > weights
    assert 0 < fresh["disk"] < fresh["free"]
    assert list(nodes(planned(project, "--target", "server"))) == ["model/lean", "model/server"]

    made = project.run("run", "pipeline.yaml", "--target", "server", "--json").document
    after = planned(project)
    assert nodes(after) == {
        "model/lean": ("cached", ""),
        "model/server": ("cached", ""),
        "model/small": ("would run", "it is new"),
    }
    known = {node["name"]: node["key"] for node in made["nodes"]}
    assert {node["name"]: node["key"] for node in after["nodes"] if node["status"] == "cached"} == known
    (server,) = (cell for cell in after["cells"] if cell["name"] == "model/server")
    kept = made["nodes"][1]["run"]["artifacts"][0]["size"]
    assert (server["is_there"], server["size"], server["size_from"]) == (True, kept, "cache")

    change(project, "{to: ort, from: lean}", "{to: ort, from: lean, level: basic}")
    change(project, "samples: 1", "samples: 2")
    assert nodes(planned(project))["model/lean"] == ("would run", "validate.samples: 1 -> 2")
    change(project, "samples: 2", "samples: 1")
    text = project.run("plan", "pipeline.yaml").stdout
    assert f"would run   about {kept / 1000:.1f} kB   targets.server.level: all -> basic\n" in text
    assert "2 of 3 products would be made" in text
    project.model.write_bytes(project.model.read_bytes() + b"\x9a\x03\x00")  # an unknown, empty field
    assert nodes(planned(project))["model/lean"] == ("would run", "model.onnx: the model has changed")


def test_sizes_are_estimated_by_the_bits_of_the_weights(project: Sandbox) -> None:
    """Bits a weight has, and what scales, zero points, tables or the places of what is left take."""
    targets = {
        "whole: {to: coreml}": (32, 32),
        "half: {to: coreml, precision: fp16}": (16, 16),
        "mixed: {to: coreml, precision: mixed}": (16, 16),
        "bytes: {to: coreml, weights: int8}": (8, 9),
        "nibbles: {to: coreml, weights: int4}": (4, 5),
        "table8: {to: coreml, weights: palette8}": (8, 9),
        "table6: {to: coreml, weights: palette6}": (6, 7),
        "table3: {to: coreml, weights: palette3}": (3, 4),
        "table2: {to: coreml, weights: palette2}": (2, 3),
        "table1: {to: coreml, weights: palette1}": (1, 2),
        "some: {to: coreml, weights: sparse50}": (16, 18),
        "few: {to: coreml, weights: sparse90}": (3.2, 5),
        "less: {to: coreml, precision: fp16, weights: palette4}": (4, 5),
        "stored: {to: tflite, precision: int8-weights}": (8, 9),
        "small: {to: tflite, precision: int4-weights}": (4, 5.5),
    }
    lines = "".join(f"  {target}\n" for target in targets)
    (project.folder / "pipeline.yaml").write_text(f"version: 1\nmodel: model.onnx\ntargets:\n{lines}")
    weights = project.model.stat().st_size
    sizes = {node["name"].removeprefix("model/"): node["size"] for node in planned(project)["nodes"]}
    bits = {name: 32 * size / weights for name, size in sizes.items()}
    outside = {
        name: bits[name]
        for name, (low, high) in ((target.partition(":")[0], each) for target, each in targets.items())
        if not low - 0.01 <= bits[name] <= high + 0.01
    }
    assert not outside


def test_bad_files_are_refused_as_by_run(project: Sandbox) -> None:
    change(project, "to: tflite", "to: tflight")
    told = [project.run(command, "pipeline.yaml") for command in ("plan", "run")]
    assert [outcome.code for outcome in told] == [2, 2]
    assert told[0].stderr == told[1].stderr
    project.model.unlink()
    assert project.run("plan", "nowhere.yaml").code == 4

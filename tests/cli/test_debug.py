"""The installed `onnxport debug`, in a fresh process."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import onnx
from onnx import numpy_helper

from tests.cli.sandbox import Sandbox


def _broken(sandbox: Sandbox) -> str:
    """A copy of the model, the weights of whose second convolution or product are 2 % larger."""
    model = onnx.load(sandbox.model)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    node = [n for n in model.graph.node if len(n.input) > 1 and n.input[1] in weights][1]
    tensor = weights[node.input[1]]
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(values * values.dtype.type(1.02), tensor.name))
    onnx.save(model, sandbox.folder / "broken.onnx")
    return node.output[0]


def test_the_node_is_named_and_its_repro_written(sandbox: Sandbox) -> None:
    where = _broken(sandbox)
    outcome = sandbox.run("debug", "model.onnx", "broken.onnx", "-o", "repro")
    assert outcome.code == 1
    assert f"value    {where!r}, stage candidate model" in outcome.stdout
    assert "is at fault" in outcome.stdout
    assert "SQNR dB" in outcome.stdout
    assert "error: broken.onnx is not equivalent to model.onnx" in outcome.stderr
    assert {path.name for path in (sandbox.folder / "repro").iterdir()} == {
        "model.onnx",
        "candidate.onnx",
        "inputs",
        "answers.npz",
        "README.md",
    }


def test_the_repro_of_an_onnx_file_shows_the_fault_again_with_its_command(sandbox: Sandbox) -> None:
    _broken(sandbox)
    found = sandbox.run("debug", "model.onnx", "broken.onnx", "-o", "repro")
    readme = (sandbox.folder / "repro" / "README.md").read_text()
    assert "onnxport validate model.onnx candidate.onnx --inputs inputs/" in readme
    outcome = sandbox.run("validate", "repro/model.onnx", "repro/candidate.onnx", "--inputs", "repro/inputs")
    assert outcome.code == 1
    assert "not equivalent" in outcome.stdout
    script = readme.split("<<'END'")[1].split("    END")[0]
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=sandbox.folder / "repro",
        capture_output=True,
        text=True,
        check=True,
    )
    numbers = re.fullmatch(r"at (.+)\nONNX Runtime (.+)\ncandidate (.+)\n", said.stdout)
    assert numbers is not None, said.stdout
    where, theirs, ours = numbers[1].replace(" ", ""), numbers[2], numbers[3]
    assert f"{ours} at {where} where ONNX Runtime, on the same inputs to it, has {theirs}" in found.stdout


def test_the_users_files_in_an_earlier_repro_are_kept(sandbox: Sandbox) -> None:
    _broken(sandbox)
    assert sandbox.run("debug", "model.onnx", "broken.onnx", "-o", "repro").code == 1
    assert sandbox.run("debug", "model.onnx", "broken.onnx", "-o", "repro").code == 1, "ours are replaced"
    (sandbox.folder / "repro" / "inputs" / "mine.npz").write_bytes(b"mine")
    outcome = sandbox.run("debug", "model.onnx", "broken.onnx", "-o", "repro")
    assert outcome.code == 2
    assert "repro contains other files: inputs/mine.npz" in outcome.stderr
    assert (sandbox.folder / "repro" / "inputs" / "mine.npz").read_bytes() == b"mine"


def test_the_document_has_the_diagnosis(sandbox: Sandbox) -> None:
    where = _broken(sandbox)
    outcome = sandbox.run("debug", "model.onnx", "broken.onnx", "--json", "--report", "run.json")
    assert outcome.code == 1
    (artifact,) = outcome.document["artifacts"]
    assert artifact["report"]["verdict"] == "not equivalent"
    assert artifact["report"]["diagnosis"]["node"]["value"] == where
    assert (sandbox.folder / "run.json").exists()


def test_nothing_to_look_for_is_a_success(sandbox: Sandbox) -> None:
    outcome = sandbox.run("debug", "model.onnx", "model.onnx")
    assert outcome.code == 0
    assert "there is no fault to find" in outcome.stdout
    shown = sandbox.run("debug", "model.onnx", "model.onnx", "--layers", "--verbose")
    assert shown.code == 0
    assert "exact" in shown.stdout


def test_a_folder_of_the_users_is_not_touched(sandbox: Sandbox) -> None:
    _broken(sandbox)
    mine = sandbox.folder / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    before = sandbox.contents()
    outcome = sandbox.run("debug", "model.onnx", "broken.onnx", "-o", "mine")
    assert outcome.code == 2
    assert "mine contains other files" in outcome.stderr
    assert sandbox.contents() == before


def test_a_limit_that_is_no_size_names_the_option(sandbox: Sandbox) -> None:
    outcome = sandbox.run("debug", "model.onnx", "model.onnx", "--memory-limit", "much")
    assert outcome.code == 2
    assert "--memory-limit: much is not allowed; give a size such as 500MB or 2GB" in outcome.stderr

"""`inspect --runs-on`: which runtimes are probed, which are estimated, and how a run ends."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path

import onnx
import onnx.version_converter
import pytest

import onnxport
from onnxport.deployment.model_variants import ModelVariants
from onnxport.deployment.placement import ProbedModel, probe
from onnxport.deployment.report import DeploymentReport
from onnxport.deployment.runtimes import Runtime
from tests.cli.sandbox import DIGITS, Sandbox
from tests.cli.test_disturbances import children, is_alive, until

# Runtimes that never answer.
SILENT = """
import sys
if any("deployment.probes" in word for word in sys.orig_argv):
    import time
    time.sleep(600)
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def test_all_runtimes_answer_and_leave_nothing_behind(sandbox: Sandbox) -> None:
    before = sandbox.contents()
    outcome = sandbox.run("inspect", "model.onnx", "--runs-on", "all", "--json")
    report = DeploymentReport.model_validate_json(outcome.stdout)
    assert (outcome.code, outcome.stderr) == (0, "")
    found = {each.runtime: each for each in report.placements}
    own = found["ort-cpu"]
    # BatchNormalization is folded into weights before nodes are assigned to providers.
    assert (own.how, own.extent, own.nodes, own.fallbacks) == ("asked", "all", 7, ())
    assert found["xnnpack"].how == "estimated"
    assert (found["xnnpack"].source, found["xnnpack"].dated) != ("", "")
    assert found["xnnpack"].nodes == 7
    assert sandbox.contents() == before


def test_fallbacks_fail_only_on_request(sandbox: Sandbox) -> None:
    assert sandbox.run("inspect", "model.onnx", "--runs-on", "xnnpack").code == 0
    assert sandbox.run("inspect", "model.onnx", "--runs-on", "xnnpack", "--error-on-fallback").code == 1
    assert sandbox.run("inspect", "model.onnx", "--runs-on", "ort-cpu", "--error-on-fallback").code == 0


def test_an_unknown_runtime_names_the_nearest(sandbox: Sandbox) -> None:
    outcome = sandbox.run("inspect", "model.onnx", "--runs-on", "ort-cpu,xnpack")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "no runtime 'xnpack'; did you mean 'xnnpack'?" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("model.onnx", "--runs-on", ""), "names no runtime"),
        (("model.ort", "--runs-on", "all"), ".ort files"),
    ],
)
def test_no_runtime_to_check_is_an_error(words: tuple[str, ...], said: str, sandbox: Sandbox) -> None:
    (sandbox.folder / "model.ort").write_bytes(b"\0" * 8)
    outcome = sandbox.run("inspect", *words, "--error-on-fallback")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert said in outcome.stderr


def test_interrupted_report_ends_its_probes_and_leaves_no_files(sandbox: Sandbox) -> None:
    sandbox.patch(SILENT)
    before = sandbox.contents()
    running = subprocess.Popen(
        sandbox.command("inspect", "model.onnx", "--runs-on", "ort-cpu,ort-mobile"),
        cwd=sandbox.folder,
        env=sandbox.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert until(lambda: len(children(running.pid)) >= 2, 60)
    born = children(running.pid)
    assert sandbox.contents() != before
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    assert until(lambda: not any(map(is_alive, born)), 10)
    assert sandbox.contents() == before


@pytest.mark.parametrize(
    "option", [["--error-on-fallback"], ["--report", "r.json"], ["--shape", "image=1,1,8,8"]]
)
def test_options_of_a_deployment_report_want_runtimes(option: list[str], sandbox: Sandbox) -> None:
    outcome = sandbox.run("inspect", "model.onnx", *option)
    assert outcome.code == 2
    assert f"{option[0]} needs --runs-on" in outcome.stderr


def test_the_report_is_the_document(sandbox: Sandbox) -> None:
    sandbox.run("inspect", "model.onnx", "--runs-on", "xnnpack", "--report", "r.json")
    assert json.loads((sandbox.folder / "r.json").read_text())["placements"][0]["runtime"] == "xnnpack"


def test_sizes_at_which_the_model_cannot_run_are_refused(sandbox: Sandbox) -> None:
    outcome = sandbox.run("inspect", "model.onnx", "--runs-on", "qnn", "--shape", "image=1,2,8,8")
    assert outcome.code == 2
    assert "does not run at the sizes of --shape" in outcome.stderr


def test_given_sizes_are_estimated(tmp_path: Path) -> None:
    proto = onnx.load(DIGITS)
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    onnx.save(proto, tmp_path / "open.onnx")
    before = onnxport.inspect_deployment(tmp_path / "open.onnx", "xnnpack").placements[0]
    after = onnxport.inspect_deployment(tmp_path / "open.onnx", "xnnpack", shape={"image": (1, 1, 8, 8)})
    assert any("is open" in each.why for each in before.fallbacks)
    assert not any("is open" in each.why for each in after.placements[0].fallbacks)


HANGS = """
import time
def probe(path, options): time.sleep(60)
"""
CRASHES = """
import os, signal
def probe(path, options): os.kill(os.getpid(), signal.SIGSEGV)
"""
FAILS = """
def probe(path, options): raise KeyError("of the library's own")
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (HANGS, "hung: no answer within 2 s"),
        (CRASHES, "crashed (signal SIGSEGV)"),
        (FAILS, "of the library's own"),
    ],
)
def test_a_runtime_that_crashes_or_hangs_is_a_row(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    runtime = Runtime("x", "Foreign", probe_module="foreign")
    answer = probe(ProbedModel(DIGITS, None, tmp_path, ModelVariants(tmp_path)), runtime, timeout=2)
    assert answer is not None
    assert (answer.how, answer.extent) == ("asked", "unknown")
    assert said in answer.why


def test_the_mobile_checker_answers(tmp_path: Path) -> None:
    path = tmp_path / "digits.onnx"
    path.write_bytes(DIGITS.read_bytes())
    fixed = onnxport.inspect_deployment(path, "ort-mobile", shape={"image": (1, 1, 8, 8)}).placements[0]
    assert (fixed.how, fixed.extent, fixed.nodes, fixed.partitions) == ("asked", "all", 7, 1)
    # Its tables know Conv and its like, but want every size.
    opened = onnxport.inspect_deployment(path, "ort-mobile").placements[0]
    assert opened.extent != "all"
    assert {each.why for each in opened.fallbacks} == {"the shape of an input is open"}
    assert list(tmp_path.iterdir()) == [path]


def test_the_suggested_command_removes_as_many_refusals_as_reported(sandbox: Sandbox) -> None:
    """Of a network with open sizes the providers of phones take nothing, and with fixed ones all."""
    ask = ("--runs-on", "ort-mobile,xnnpack", "--json")
    before = DeploymentReport.model_validate_json(sandbox.run("inspect", "model.onnx", *ask).stdout)
    mobile, xnnpack = before.placements
    assert mobile.change is not None
    assert (len(mobile.fallbacks), mobile.change.mends) == (7, 7)
    assert xnnpack.change is None  # which has no Flatten, whatever the sizes
    assert mobile.change.command == "onnxport optimize model.onnx --shape image=1,1,8,8"
    done = sandbox.run(*shlex.split(mobile.change.command)[1:])
    assert done.code == 0
    after = DeploymentReport.model_validate_json(
        sandbox.run("inspect", "model_optimized.onnx", *ask).stdout
    ).placements[0]
    assert len(after.fallbacks) == len(mobile.fallbacks) - mobile.change.mends


def test_an_opset_that_is_too_new_is_brought_down(tmp_path: Path) -> None:
    path = tmp_path / "new.onnx"
    onnx.save(onnx.version_converter.convert_version(onnx.load(DIGITS), 22), path)
    found = onnxport.inspect_deployment(path, "xnnpack").placements[0]
    assert any(each.why == "Conv of opset 22, only 11" for each in found.fallbacks)
    assert found.change is not None
    assert found.change.command.endswith("--opset 21")

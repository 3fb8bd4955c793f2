"""Help texts, and the promise that options are the params models' fields."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import onnxport
from onnxport.bench.params import BenchParams
from onnxport.cli.commands import COMMANDS, cli
from onnxport.converters.params import PARAMS as TARGET_PARAMS
from onnxport.deployment.params import DeploymentParams
from onnxport.exporters.params import ExportParams
from onnxport.optimizers.params import ExtractParams, OptimizeParams
from onnxport.profiling.params import ProfileParams
from onnxport.quantize.params import QuantizeParams, calibrated_fields
from onnxport.validate.debug.params import DebugParams
from onnxport.validate.params import SamplesParams, ValidateParams
from tests.cli.sandbox import Sandbox

# What the commands have beside their params.
OWN = {
    "diff": {"no_run", "report_files", "custom_ops_library"},
    "convert": {
        "to",
        "destination",
        "operators",
        "custom_ops_library",
        "no_latency",
        "no_validate",
        "attest",
        "keep_rejected",
        "report_files",
    },
    "export": {"destination", "custom_ops_library", "no_validate", "attest", "keep_rejected", "report_files"},
    "optimize": {
        "destination",
        "operators",
        "custom_ops_library",
        "no_validate",
        "attest",
        "keep_rejected",
        "report_files",
    },
    "extract": {
        "destination",
        "custom_ops_library",
        "no_validate",
        "attest",
        "keep_rejected",
        "report_files",
    },
    "quantize": {
        "precisions",
        "destination",
        "operators",
        "custom_ops_library",
        "no_latency",
        "no_validate",
        "attest",
        "keep_rejected",
        "report_files",
    },
    "validate": {"custom_ops_library", "report_files"},
    "bench": {"custom_ops_library", "report_files"},
    "debug": {"custom_ops_library", "destination", "report_files"},
    "plan": {"targets", "frozen"},
    "cache": {"size", "calibrations"},
    "profile": {"custom_ops_library", "trace_file", "report_files"},
    "view": {"reports", "export", "port", "no_browser"},
    "inspect": {"plan", "report_files", "others", "required_operators"},
    "samples": {"custom_ops_library", "folder"},
    "schema": set(),
    "verify": {"lock", "source", "attestation"},
    "doctor": set(),
    "init": {"destination", "ci", "force"},
    "run": {
        "frozen",
        "update_sources",
        "no_cache",
        "paranoid",
        "targets",
        "jobs",
        "memory_limit",
        "executor",
        "scheduler",
        "report_paths",
        "remote_cache",
        "remote_cache_read_only",
        "retries",
        "annotations",
    },
}
SHARED = {"json", "quiet", "verbose", "raised"}
PARAMS = {
    "convert": (*TARGET_PARAMS.values(), ValidateParams),
    "export": (ExportParams, ValidateParams),
    "optimize": (OptimizeParams, ValidateParams),
    "extract": (ExtractParams, ValidateParams),
    "quantize": (QuantizeParams, ValidateParams),
    "validate": (ValidateParams,),
    "debug": (DebugParams,),
    "diff": (DebugParams,),
    "bench": (BenchParams,),
    "inspect": (DeploymentParams,),
    "samples": (SamplesParams,),
    "profile": (ProfileParams,),
}


def command_of(name: str) -> click.Command:
    command = importlib.import_module(f"onnxport.cli.{name}").command
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_the_fields_of_the_params(name: str) -> None:
    fields = {
        field
        for model in PARAMS.get(name, ())
        for field, info in model.model_fields.items()
        if (info.json_schema_extra or {})
        != {"option": False}  # the command spells it itself, or nobody gives it
    }
    fields |= set(calibrated_fields()) if name == "convert" else set()
    options = {parameter.name for parameter in command_of(name).params if isinstance(parameter, click.Option)}
    assert options == fields | OWN[name] | SHARED


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    for parameter in command_of(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@pytest.mark.parametrize(
    ("name", "option"), [("optimize", "--shape"), ("extract", "--inputs"), ("convert", "--shape")]
)
def test_what_changes_the_file_is_no_option_of_the_proof(name: str, option: str, sandbox: Sandbox) -> None:
    common, _, _ = sandbox.run(name, "--help").stdout.partition("The proof:")
    assert f"\n  {option} " in common


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_only_lines_that_say_something(name: str, sandbox: Sandbox) -> None:
    """The usage line has the arguments; click would list them again, without a word."""
    _, _, options = sandbox.run(name, "--help").stdout.partition("\nOptions:\n")
    assert options.startswith("  -"), options[:80]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_parses(name: str, sandbox: Sandbox) -> None:
    outcome = sandbox.run(name, "--help")
    assert outcome.code == 0
    assert COMMANDS[name].partition(" ")[0] in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    examples = [line.strip() for line in outcome.stdout.splitlines() if line.startswith("    onnxport ")]
    assert examples
    for example in examples:
        program, command, *arguments = shlex.split(example)
        assert (program, command) == ("onnxport", name)
        command_of(name).make_context(name, arguments)  # refuses what it does not know


def test_group_lists_every_command(sandbox: Sandbox) -> None:
    outcome = sandbox.run("--help")
    for name in COMMANDS:
        assert f"\n  {name} " in outcome.stdout
    with click.Context(cli) as context:
        assert cli.list_commands(context) == list(COMMANDS)


def test_version(sandbox: Sandbox) -> None:
    assert sandbox.run("--version").stdout == f"onnxport {onnxport.__version__}\n"


def test_no_arguments_give_the_help(sandbox: Sandbox) -> None:
    assert sandbox.run() == sandbox.run("--help")


def test_python_m_is_the_same_command(sandbox: Sandbox) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onnxport", "convert", "nowhere.onnx", "--to", "ort"],
        cwd=sandbox.folder,
        env=sandbox.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (4, "error: nowhere.onnx does not exist\nexit 4\n")


def test_an_option_of_two_targets_takes_what_either_does_and_each_refuses_the_rest(sandbox: Sandbox) -> None:
    refused = sandbox.run("convert", sandbox.model, "--to", "tflite", "--precision", "mixed")
    assert refused.code == 2
    assert "--precision: mixed is not allowed; give 'fp32', 'fp16', 'int8-dynamic'" in refused.stderr
    refused = sandbox.run("convert", sandbox.model, "--to", "coreml", "--precision", "int8-dynamic")
    assert refused.code == 2
    assert "--precision: int8-dynamic is not allowed; give 'fp32', 'fp16', 'mixed'" in refused.stderr
    text = " ".join(sandbox.run("convert", "--help").stdout.split())
    assert "--to coreml: fp32, fp16, mixed, int8, int16x8." in text
    assert text.index("Options:") < text.index("--precision") < text.index("Only --to coreml:")
    assert text.index("Only --to coreml:") < text.index("--minimum-target") < text.index("Only --to ort:")
    assert text.index("Only with --calib:") < text.index("--bias-correction")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_their_completion(shell: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("onnxport")],
        env=os.environ | {"_ONNXPORT_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "_ONNXPORT_COMPLETE" in done.stdout

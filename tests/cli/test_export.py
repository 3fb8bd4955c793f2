"""`onnxport export` of what is no model, of code that misbehaves, and of a factory that only looks as if it did.

Nothing here is about a framework; tests/exporters has a file for each.
"""

from __future__ import annotations

import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.failing import Case, assert_fails, registering
from tests.cli.sandbox import Sandbox, unprivileged

CASES: dict[str, Case] = {}
case = registering(CASES)

MODELS = """\
import os, time

def crashes():
    print("on the way", flush=True)
    os._exit(3)

def hangs():
    open("started", "w").close()
    time.sleep(600)

def of_torch():
    import torch
    return torch.nn.Identity()

def fits():
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3)).astype(np.float32)
    print("fitted, says the factory", flush=True)
    os.chdir("/")
    return LogisticRegression().fit(x, (x[:, 0] > x[:, 1]).astype(int))
"""


def models(sandbox: Sandbox) -> None:
    (sandbox.folder / "models.py").write_text(MODELS)


@case(6, "models:crashes in its framework crashed (exit code 3)", "on the way")
def a_factory_that_ends_the_process(sandbox: Sandbox) -> tuple[str | Path, ...]:
    models(sandbox)
    return ("export", "models:crashes")


@case(4, "the module 'nowhere' does not exist", "PYTHONPATH")
def a_module_that_is_not_there(sandbox: Sandbox) -> tuple[str | Path, ...]:
    return ("export", "nowhere:build", "--no-validate")


@case(5, "models:of_torch needs torch, which is not installed", "pip install 'onnxport[torch]'")
def a_framework_that_is_not_installed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    models(sandbox)
    sandbox.patch("import sys; sys.modules['torch'] = None")
    return ("export", "models:of_torch", "--input", "x=1,3")


@case(5, "exporting model.keras needs tensorflow, tf2onnx", "pip install 'onnxport[tensorflow]'")
def a_framework_of_a_file_that_is_not_installed(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "model.keras").write_bytes(b"x")
    sandbox.patch(
        "import importlib.metadata as metadata\n"
        "found = metadata.version\n"
        "def version(name):\n"
        "    if name.startswith(('tensorflow', 'tf2onnx')):\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "metadata.version = version\n"
    )
    return ("export", "model.keras")


@case(4, "model.pkl is a pickle: reading it can run any code", "--trust")
def a_pickle_without_trust(sandbox: Sandbox) -> tuple[str | Path, ...]:
    (sandbox.folder / "model.pkl").write_bytes(pickle.dumps({"a": 1}))
    return ("export", "model.pkl")


@case(6, "locked", before_exec=unprivileged)
def an_output_that_cannot_be_written(sandbox: Sandbox) -> tuple[str | Path, ...]:
    models(sandbox)
    (sandbox.folder / "locked").mkdir(mode=0o555)
    return ("export", "models:fits", "-o", "locked/model.onnx")


@pytest.mark.parametrize("name", CASES)
def test_failure_says_why_and_leaves_nothing(name: str, sandbox: Sandbox) -> None:
    assert_fails(CASES[name], sandbox)


@pytest.mark.parametrize("end", ["interrupted", "out of time"])
def test_a_factory_that_hangs_is_ended(end: str, sandbox: Sandbox) -> None:
    models(sandbox)
    before = set(sandbox.contents()) | {"work/started"}
    command = sandbox.command("export", "models:hangs", "--timeout", "4" if end == "out of time" else "100")
    running = subprocess.Popen(
        command, cwd=sandbox.folder, env=sandbox.environment, stderr=subprocess.PIPE, text=True
    )
    if end == "interrupted":
        deadline = time.monotonic() + 60
        while not (sandbox.folder / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == (130 if end == "interrupted" else 6), said
    if end == "out of time":
        assert "models:hangs in its framework hung: no answer within 4 s" in said
        assert "--timeout SECONDS" in said
    assert {name for name in sandbox.contents() if "__pycache__" not in name} <= before


def test_a_factory_that_prints_and_goes_elsewhere_is_exported_all_the_same(sandbox: Sandbox) -> None:
    """And the file says what made it; `python -m onnxport` finds the module as the command does."""
    models(sandbox)
    outcome = sandbox.run("export", "models:fits", "--json", "--samples", "1")
    assert outcome.code == 0, outcome.stderr
    assert "says the factory" not in outcome.stderr
    (artifact,) = outcome.document["artifacts"]
    assert (artifact["path"], artifact["report"]["verdict"]) == ("fits.onnx", "proven")
    assert outcome.document["source"]["format"] == "sklearn"
    assert artifact["report"]["reference"]["runtime"].startswith("scikit-learn ")
    assert {"scikit-learn", "skl2onnx", "onnx"} <= set(outcome.document["environment"])
    note = sandbox.run("inspect", "fits.onnx", "--json").document["manifest"]
    assert note["source"] == outcome.document["source"]["digest"]
    assert {"onnxport", "scikit-learn", "skl2onnx"} <= set(note["made_by"])
    shutil.copy(sandbox.folder / "fits.onnx", sandbox.folder / "again.onnx")
    assert sandbox.run("validate", "fits.onnx", "again.onnx", "--samples", "1").code == 0
    command = [sys.executable, "-m", "onnxport", "export", "models:absent"]
    done = subprocess.run(
        command, cwd=sandbox.folder, env=sandbox.environment, capture_output=True, text=True, check=False
    )
    assert "models has no 'absent'" in done.stderr

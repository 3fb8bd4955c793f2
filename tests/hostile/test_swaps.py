"""A file that is swapped between its check and its use: what was opened is what gets checked.

A hook of the interpreter does it at the last moment, right before the file is opened.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from onnxport.core.errors import InputError
from onnxport.formats.artifact import Artifact
from onnxport.pipelines.runner.model_sources import unchanged
from tests.cli.sandbox import DIGITS, Sandbox
from tests.hostile.attacking import Target
from tests.hostile.test_artefact_attacks import _constant, _package

_HOOK = """
import os, sys
left = [{name!r}]
def swap(event, arguments):
    if event == "open" and left and isinstance(arguments[0], (str, os.PathLike)):
        if os.fspath(arguments[0]).endswith(left[0]):
            path = os.path.realpath(os.fspath(left.pop() and arguments[0]))
            os.unlink(path)
            {by}
sys.addaudithook(swap)
"""
SECRET = "os.symlink({secret!r}, path)"
PIPE = "os.mkfifo(path)"
ENDLESS = "os.symlink('/dev/zero', path)"
LARGE = "os.truncate(os.open(path, os.O_WRONLY | os.O_CREAT), 1 << 36)"
PIPELINE = "version: 1\nmodel: model.onnx\n{}targets:\n  server: {{to: ort}}\n"


def package(sandbox: Sandbox) -> None:
    _package(Target(sandbox.folder, None), lambda _, block: _constant(block, "c", 4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "by", "arguments", "code", "says"),
    [
        ("more.yaml", SECRET, "plan pipeline.yaml", 2, "more.yaml lies outside of the pipeline's folder"),
        ("more.yaml", PIPE, "plan pipeline.yaml", 4, "more.yaml is not a regular file"),
        ("pipeline.yaml", PIPE, "plan pipeline.yaml", 4, "pipeline.yaml is not a regular file"),
        ("pipeline.yaml", LARGE, "plan pipeline.yaml", 2, "--limit yaml-bytes="),
        ("pipeline.lock", LARGE, "plan pipeline.yaml", 2, "--limit lock-bytes="),
        ("pipeline.lock", ENDLESS, "plan pipeline.yaml", 4, "not a regular file"),
        ("model.mlmodel", PIPE, "inspect bad.mlpackage", 4, "not a regular file"),
        ("a.intoto.json", ENDLESS, "verify model.onnx --attestation a.intoto.json", 4, "not an attestation"),
    ],
)
def test_a_swapped_file_is_refused(
    name: str, by: str, arguments: str, code: int, says: str, tmp_path: Path
) -> None:
    sandbox = Sandbox(tmp_path)
    (sandbox.folder / "more.yaml").write_text("stages:\n  lean: {use: optimize}\n")
    (sandbox.folder / "pipeline.yaml").write_text(PIPELINE.format("include: more.yaml\n"))
    (sandbox.folder / "pipeline.lock").write_text("# onnxport\nversion: 1\n")
    (sandbox.folder / "a.intoto.json").write_text("{}")
    secret = tmp_path / "secret.yaml"
    secret.write_text("models: {stolen: the-secret.onnx}\n")
    package(sandbox)
    assert sandbox.run(*arguments.split()).code in (0, 2, 4)
    sandbox.patch(_HOOK.format(name=name, by=by.format(secret=str(secret))))
    outcome = sandbox.run(*arguments.split(), timeout=30)
    assert outcome.code == code, outcome.stderr
    assert says in outcome.stderr
    assert "the-secret" not in outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_file_that_was_swapped_and_put_back_is_refused(tmp_path: Path) -> None:
    """Inode, size and time are those of before; only the system's own time of change is not."""
    model, aside, other = (tmp_path / name for name in ("model.onnx", "aside", "other"))
    model.write_bytes(DIGITS.read_bytes())
    other.write_bytes(b"another model")
    time.sleep(0.02)  # some file systems count time in ticks
    reading = unchanged(Artifact.open(model))
    reading.__enter__()
    model.rename(aside)
    other.rename(model)
    aside.rename(model)
    with pytest.raises(InputError, match=r"model\.onnx changed while it was read"):
        reading.__exit__(None, None, None)


def test_a_file_that_gets_another_name_is_the_same(tmp_path: Path) -> None:
    """As a cache does that links its products."""
    model = tmp_path / "model.onnx"
    model.write_bytes(DIGITS.read_bytes())
    (tmp_path / "first.onnx").hardlink_to(model)
    time.sleep(0.02)
    with unchanged(Artifact.open(model)):
        (tmp_path / "second.onnx").hardlink_to(model)


def test_an_untouched_project_plans(tmp_path: Path) -> None:
    """The hook alone, for a name that nobody opens, changes nothing."""
    sandbox = Sandbox(tmp_path)
    assert sandbox.model.read_bytes() == DIGITS.read_bytes()
    (sandbox.folder / "pipeline.yaml").write_text(PIPELINE.format(""))
    sandbox.patch(_HOOK.format(name="nothing", by=PIPE))
    assert sandbox.run("plan", "pipeline.yaml").code == 0

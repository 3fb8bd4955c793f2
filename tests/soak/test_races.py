"""Two processes at once on one cache and one output. One race in CI, all with `make soak`."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.soak.project import DIGITS, ROOT, TIMEOUT, Project, Undisturbed

# Two commands that write something else to one output.
RIVALS = {
    "file": (("--to", "ort", "--level", "basic"), ("--to", "ort", "--level", "all"), "out.ort"),
    "folder": (("--to", "coreml"), ("--to", "coreml", "--precision", "fp16"), "out.mlpackage"),
}


@pytest.mark.parametrize(
    "trial", [pytest.param(each, marks=() if each < 1 else pytest.mark.exhaustive) for each in range(20)]
)
def test_two_runs_at_once(trial: int, tmp_path: Path, undisturbed: Undisturbed) -> None:
    project = Project.made(tmp_path / "project")
    chance = random.Random(trial)
    with project.start("--jobs", str(chance.choice((1, 2)))) as first:
        time.sleep(chance.uniform(0, 0.5))
        with project.start("--jobs", str(chance.choice((1, 2)))) as second:
            said = [process.communicate(timeout=TIMEOUT)[1] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert project.artefacts() == undisturbed.artefacts
    assert project.litter() == []
    assert "made" not in project.run(), "an entry was lost or damaged"


@pytest.mark.parametrize(
    ("kind", "trial"),
    [
        pytest.param(kind, each, marks=() if (kind, each) == ("file", 0) else pytest.mark.exhaustive)
        for kind in RIVALS
        for each in range(10)
    ],
)
def test_two_conversions_to_one_output(kind: str, trial: int, tmp_path: Path) -> None:
    """The output is that of one of them, whole."""
    *rivals, output = RIVALS[kind]
    alone = set()
    for number, options in enumerate(rivals):
        folder = tmp_path / str(number)
        assert _end(_convert(folder, options, output)) == ""
        alone.add(_digests(folder / output))
    assert len(alone) == 2, "the rivals write the same"
    folder = tmp_path / "both"
    with _convert(folder, rivals[0], output) as first:
        time.sleep(random.Random(trial).uniform(0.0, 0.5))
        with _convert(folder, rivals[1], output) as second:
            assert [_end(first), _end(second)] == ["", ""]
    assert _digests(folder / output) in alone
    assert _names(folder) == _names(tmp_path / "0") | _names(tmp_path / "1")


def _convert(folder: Path, options: tuple[str, ...], output: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    if not (folder / "digits.onnx").exists():
        shutil.copy(DIGITS, folder)
    command = ("convert", "digits.onnx", *options, "-o", output)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "onnxport", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> str:
    """Return what a conversion says when it fails."""
    said = process.communicate(timeout=TIMEOUT)[1]
    return said if process.returncode else ""


def _names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


def _digests(output: Path) -> tuple[tuple[str, str], ...]:
    """Return the digests of a file, or of the files of a folder, by name."""
    files = sorted(each for each in output.rglob("*") if each.is_file()) if output.is_dir() else [output]
    return tuple(
        (str(each.relative_to(output)), hashlib.sha256(each.read_bytes()).hexdigest()) for each in files
    )

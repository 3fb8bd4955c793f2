"""What is said of a pipeline's run while it goes."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onnxport.cli.commands import cli
from tests.pipelines.executors.acting import DIGITS, ROOT

PIPELINE = """
version: 1
model: digits.onnx
targets: {small: {to: ort, level: basic}, server: {to: ort}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(DIGITS, tmp_path)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONNXPORT_CACHE")
    return tmp_path


def test_a_log_has_a_line_for_each_product(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "pipeline.yaml"], standalone_mode=False) == 0
    said = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\[1/2\] digits/small: made, proven, \d+\.\d s", said[0])
    assert re.fullmatch(r"\[2/2\] digits/server: made, proven, \d+\.\d s", said[1])
    assert cli.main(["run", "pipeline.yaml"], standalone_mode=False) == 0
    assert capsys.readouterr().err.splitlines()[1] == "[2/2] digits/server: cached, proven"
    for silent in ("--quiet", "--json"):
        assert cli.main(["run", "pipeline.yaml", silent], standalone_mode=False) == 0
        assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix", reason="a terminal of POSIX")
def test_a_terminal_shows_what_is_being_made(project: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "onnxport", "run", "pipeline.yaml"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait() == 0
    os.close(ours)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode())
    assert re.search(r"digits/small  (load|convert|validate)\s+0:\d\d", shown)
    assert re.search(r"1 of 2, about 0:\d\d left", shown)
    assert re.search(r"\[2/2\] digits/server: made, proven", shown)

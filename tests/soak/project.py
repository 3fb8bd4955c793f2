"""A small pipeline and the installed command on it, in fresh processes that are killed, doubled and compared."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"
PIPELINE = """
version: 1
model: digits.onnx
stages:
  lean: {use: optimize}
targets:
  server: {to: ort, from: lean, matrix: {level: [basic, all]}}
  plain: {to: ort, level: extended}
"""
NODES = 4
TIMEOUT = 120.0


@dataclass(frozen=True)
class Project:
    """A folder with a model and a pipeline."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Project:
        folder.mkdir(parents=True)
        shutil.copy(DIGITS, folder)
        (folder / "pipeline.yaml").write_text(PIPELINE)
        return cls(folder)

    def start(self, *options: str) -> subprocess.Popen[str]:
        """`onnxport run`, whose process has ended when the `with` block has."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("ONNXPORT_CACHE", None)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "onnxport", "run", "pipeline.yaml", *options],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str) -> str:
        """A whole run, which has to succeed; what it said on stderr."""
        with self.start(*options) as process:
            _, stderr = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, stderr
        return stderr

    def artefacts(self) -> dict[str, str]:
        """Digests of what was delivered, by name; what is no artefact shows as another name."""
        build = self.folder / "build"
        return {
            file.relative_to(build).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(build.rglob("*"))
            if file.is_file()
        }

    def litter(self) -> list[str]:
        """What a run leaves that is neither artefact nor entry of the cache."""
        private = self.folder / ".onnxport" / "stages" / "new"
        found = [*self.folder.rglob(".onnxport-*"), *(private.iterdir() if private.exists() else ())]
        return [str(each.relative_to(self.folder)) for each in found]


@dataclass(frozen=True)
class Undisturbed:
    """What a run leaves, by name, and how long it takes."""

    artefacts: dict[str, str]
    seconds: float


def descendants(process: int) -> list[int]:
    """The processes that `process` started, and theirs."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in (line.split() for line in listed.splitlines())}
    found = [process]
    for each in found:
        found += [pid for pid, parent in parents.items() if parent == each]
    return found[1:]


def wait_until_gone(processes: list[int], seconds: float = 30.0) -> None:
    """Fails if one of `processes` still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while left := [each for each in processes if Path(f"/proc/{each}").exists() and not _is_dead(each)]:
        assert time.monotonic() < deadline, f"{left} still run"
        time.sleep(0.05)


def _is_dead(process: int) -> bool:
    """A process that has ended and for whose end nobody has asked."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

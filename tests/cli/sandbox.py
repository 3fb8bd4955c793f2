"""The installed command in a fresh process, in a folder of its own, watched for what it leaves behind."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@dataclass(frozen=True)
class Outcome:
    """How one run of the command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """stdout as JSON; fails if anything else stands there."""
        return json.loads(self.stdout)


class Sandbox:
    """A folder with a model in it and a temporary folder beside it, and the command to run there."""

    def __init__(self, root: Path) -> None:
        self.folder, self.temporary = root / "work", root / "tmp"
        for folder in (self.folder, self.temporary):
            folder.mkdir()
        self.model = self.folder / "model.onnx"
        self.model.write_bytes(DIGITS.read_bytes())
        self.environment = os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}
        for variable in ("COLUMNS", "ORT_DISABLE_TELEMETRY"):
            self.environment.pop(variable, None)

    def command(self, *arguments: str | Path) -> list[str]:
        installed = Path(sys.executable).with_name("onnxport")
        start = [str(installed)] if installed.exists() else [sys.executable, "-m", "onnxport"]
        return [*start, *map(str, arguments)]

    def run(
        self,
        *arguments: str | Path,
        before_exec: Callable[[], None] | None = None,
        timeout: float = 120.0,
    ) -> Outcome:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            preexec_fn=before_exec,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def patch(self, code: str) -> None:
        """Has every later run execute `code` at its start, as a way to break something inside it."""
        hooks = self.folder.parent / "hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / "sitecustomize.py").write_text(code)
        self.environment["PYTHONPATH"] = os.pathsep.join((str(hooks), str(ROOT)))

    def contents(self) -> Mapping[str, bytes | None]:
        """Every file (with its bytes) and folder in the sandbox, hidden and temporary ones included."""
        found = {}
        for place in (self.folder, self.temporary):
            for path in sorted(place.rglob("*")):
                name = path.relative_to(self.folder.parent).as_posix()
                readable = path.is_file() and os.access(path, os.R_OK)
                found[name] = path.read_bytes() if readable else None
        return found


def unprivileged() -> None:
    """For `before_exec`: takes root's right to ignore file modes, so that they count in the child."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")

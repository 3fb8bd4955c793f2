"""A process on a lesser CPU than this machine's: x86 with AVX2 and without VNNI, by QEMU's user mode emulation.

ONNX Runtime chooses its integer kernels by the CPU. Debian's package qemu-user runs one process, and its children,
as if on a Haswell; it costs 10 to 30 times the time, so that few and small cases run so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

QEMU = "qemu-x86_64"
_CPU = "Haswell-noTSX"


def lacking() -> str:
    """Why there is no such process here; empty where there is one."""
    if "vnni" not in _flags():
        return "this machine's CPU has no VNNI itself: every test here runs on such a CPU"
    if shutil.which(QEMU) is None:
        return f"{QEMU} is not installed (Debian's package qemu-user), which emulates a CPU without VNNI"
    return ""


def _flags() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def python(folder: Path) -> Path:
    """An interpreter with this environment's packages whose processes, children included, run on the lesser CPU.

    A virtual environment of its own in `folder`: what Python calls `sys.executable`, and so starts its children with,
    is the script that starts QEMU.
    """
    environment = Path(sys.prefix)
    script = folder / "bin" / "python"
    script.parent.mkdir(parents=True)
    (folder / "lib").symlink_to(environment / "lib")
    shutil.copy(environment / "pyvenv.cfg", folder)
    real = Path(sys.executable).resolve()
    script.write_text(f'#!/bin/sh\nexec {QEMU} -cpu {_CPU} -0 "$0" {real} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return script


def run(interpreter: Path, *arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS` there, from the checkout."""
    return subprocess.run(
        [interpreter, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=Path(__file__).parents[1],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )

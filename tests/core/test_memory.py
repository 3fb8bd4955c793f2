"""Memory that was freed goes back to the system on request."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Arrays that the C library takes from its heap; the last one keeps what lies before it from shrinking the heap.
_PROGRAM = """
import numpy as np
from pathlib import Path
from onnxport.core.memory import return_freed_memory

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

arrays = [np.ones(12_000) for _ in range(1000)]
full = held()
del arrays[:-1]
return_freed_memory()
print(full - held())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library returns memory by itself")
def test_freed_memory_goes_back_to_the_system() -> None:
    run = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert int(run.stdout) > 80_000_000

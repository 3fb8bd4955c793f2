"""What the command sets for the libraries that it loads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Runs `onnxport --version` to its end, then code in the same process.
_THEN = """\
import os, sys
from onnxport import cli
def then(code):
    {}
    end(0)
end, os._exit = os._exit, then
sys.argv = ["onnxport", "--version"]
cli.main()
"""
_SPENT = """\
import numpy, time
    numpy.ones((400, 400)) @ numpy.ones((400, 400))
    time.sleep(0.2)
    others = [each for each in os.listdir("/proc/self/task") if each != str(os.getpid())]
    spent = [int(open(f"/proc/self/task/{each}/schedstat").read().split()[0]) for each in others]
    print(len(others), max(spent, default=0) / 1e6)
"""


def after_a_command(code: str, **environment: str) -> list[str]:
    # Tests that run a compiler's worker in their own process leave its number of threads.
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", _THEN.format(code)],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split("\n", 1)[1].split()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_of_numpy_that_wait_do_not_compute() -> None:
    """By default each of them spins for 30 ms after every product."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("OpenBLAS starts no threads on one core")
    count, most = after_a_command(_SPENT)
    assert int(count) > 1, "one waits for signals"
    assert float(most) < 15
    _, spinning = after_a_command(_SPENT, OPENBLAS_THREAD_TIMEOUT="28")
    assert float(spinning) > 15, "the user's own setting counts"


def test_pydantic_searches_no_plugins() -> None:
    code = "import pydantic.plugin._loader as found; print(len(found.get_plugins()), found._plugins)"
    assert after_a_command(code) == ["0", "None"]

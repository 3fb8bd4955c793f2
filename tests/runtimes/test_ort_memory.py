"""Reference and probe run in one process, in turns: they take no more memory than one of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

FLOATS = 8 * 2**20  # of one value: 32 MB

PEAK = """
import sys
from pathlib import Path
import numpy as np
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime

def held():
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

path, *levels = sys.argv[1:]
sessions = [OrtRuntime(Path(path), RuntimeOptions(level=level)) for level in levels]
feeds = {"x": np.ones((FLOATS,), np.float32)}
before = held()
for _ in range(3):
    for session in sessions:
        session.run(feeds)
print(held() - before)
""".replace("FLOATS", str(FLOATS))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six values of 32 MB that are needed to the end, and a small result."""
    values = [f"v{number}" for number in range(6)]
    nodes = [helper.make_node("Sin", ["x" if i == 0 else values[i - 1]], [values[i]]) for i in range(6)]
    nodes += [helper.make_node("Sum", values, ["all"]), helper.make_node("ReduceMax", ["all"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "heavy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    path = tmp_path_factory.mktemp("heavy") / "heavy.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def peak(model: Path, *levels: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, model, *levels], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell a process's peak"
)
def test_two_sessions_in_turns_take_the_memory_of_one(model: Path) -> None:
    one, both = peak(model, "all"), peak(model, "all", "disable")
    assert one < 12 * 4 * FLOATS  # no second block that is planned ahead
    assert both < 1.25 * one

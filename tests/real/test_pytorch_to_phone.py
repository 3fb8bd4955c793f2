"""From PyTorch to a proven TFLite file and a proven Core ML package, which see in photos what PyTorch sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch_to_phone.py"


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_mobilenet_on_the_phone_sees_what_it_saw_in_pytorch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert (found["photos"], found["right in PyTorch"]) == (20, 18)
    for name in ("mobilenetv2.onnx", "mobilenetv2.tflite", "mobilenetv2.mlpackage"):
        assert found[name] == {"as PyTorch": 20, "verdict": "proven"}
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"mobilenetv2.onnx", "mobilenetv2.tflite", "mobilenetv2.mlpackage"}

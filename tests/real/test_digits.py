"""The network trained in the tree keeps its test accuracy exactly through every target."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import onnxport
from onnxport.formats.artifact import SUFFIXES

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits"


@pytest.mark.parametrize("target", ["tflite", "coreml", "ort"])
def test_accuracy_on_the_test_split_is_the_original_s(target: str, tmp_path: Path) -> None:
    output = tmp_path / f"digits{SUFFIXES[target]}"
    source = DIGITS / "digits.onnx"
    subprocess.run(
        [sys.executable, "-m", "onnxport", "convert", str(source), "--to", target, "-o", str(output)],
        check=True,
    )
    test = np.load(DIGITS / "test.npz")
    accuracies = []
    for path in (source, output):
        with onnxport.load(path) as runtime:
            # In parts: a package takes batches up to 64 unless told otherwise.
            parts = np.array_split(test["image"], len(test["image"]) // 32)
            logits = np.concatenate([runtime.run({"image": part})["logits"] for part in parts])
        accuracies.append(float((logits.argmax(axis=1) == test["label"]).mean()))
    assert accuracies[0] >= 0.975
    assert accuracies[1] == accuracies[0]

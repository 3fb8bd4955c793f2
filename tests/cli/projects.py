"""A project as a user has one: a model, samples, and a pipeline.yaml that was run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from onnxport.cli.commands import cli
from tests.cli.sandbox import DIGITS


def project_of(pipeline: str, folder: Path) -> Path:
    """`folder` with digits.onnx, three samples of it, `pipeline` as pipeline.yaml and what a run of it made."""
    (folder / "samples").mkdir(parents=True)
    shutil.copy(DIGITS, folder)
    images = np.load(DIGITS.with_name("test.npz"))["image"]
    for number in range(3):
        np.savez(folder / "samples" / f"{number}.npz", image=images[number : number + 1])
    (folder / "pipeline.yaml").write_text(pipeline)
    assert cli.main(["run", str(folder / "pipeline.yaml"), "-q"], standalone_mode=False) == 0
    return folder

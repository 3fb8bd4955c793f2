"""The same pipeline on the same versions gives the same bytes: in another folder, with another hash seed, from an empty
cache, by more processes; and the bytes are those of the single commands.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.cli.sandbox import DIGITS, Sandbox

FEW = """
version: 1
model: model.onnx
stages:
  lean: {use: optimize}
targets:
  plain: {to: onnx, from: lean}
  server8: {to: ort, precision: int8, calib: samples, method: minmax}
"""
STAGES = """
  half: {use: optimize, from: lean, fp16: true}
  small: {use: quantize, from: lean, precision: int8, calib: samples, method: minmax}
targets:"""
ALL = f"""{FEW.replace("targets:", STAGES[1:])}
  plain8: {{to: onnx, from: small}}
  plain16: {{to: onnx, from: half}}
  phone: {{to: tflite}}
  phone8: {{to: tflite, precision: int8, calib: samples, method: minmax}}
  phone8-small: {{to: tflite, from: small}}
  apple: {{to: coreml}}
  apple16: {{to: coreml, precision: fp16}}
  apple8: {{to: coreml, precision: int8, calib: samples, method: minmax}}
  server: {{to: ort, from: half}}
  auto: {{to: ort, precision: int8, calib: samples, method: auto, exclude: [logits]}}
"""
# Target to what makes the same in one go.
IN_ONE_GO = {
    "server8.ort": ("--to", "ort", "--precision", "int8", "--calib", "samples", "--method", "minmax"),
    "phone8.tflite": ("--to", "tflite", "--precision", "int8", "--calib", "samples", "--method", "minmax"),
    "apple8.mlpackage": ("--to", "coreml", "--precision", "int8", "--calib", "samples", "--method", "minmax"),
}


def project(sandbox: Sandbox, place: str, text: str) -> Path:
    folder = sandbox.folder / place
    (folder / "samples").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(DIGITS.read_bytes())
    images = np.load(DIGITS.with_name("test.npz"))["image"]
    for number in range(12):
        np.savez(folder / "samples" / f"{number:02}.npz", image=images[number : number + 1])
    (folder / "pipeline.yaml").write_text(text)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in (folder / "build").rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def run(sandbox: Sandbox, folder: Path, *arguments: str, seed: int, **variables: str) -> None:
    """Runs the command in `folder`, with a cache of its own."""
    environment = sandbox.environment | variables
    environment |= {"PYTHONHASHSEED": str(seed), "ONNXPORT_CACHE": str(sandbox.temporary / f"cache{seed}")}
    command = sandbox.command(*arguments, "--quiet")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", [FEW, pytest.param(ALL, marks=pytest.mark.exhaustive)], ids=["few", "all"])
def test_same_pipeline_same_bytes(text: str, sandbox: Sandbox) -> None:
    here = project(sandbox, "here", text)
    there = project(sandbox, "another/place", text)
    run(sandbox, here, "run", "pipeline.yaml", seed=1)
    run(
        sandbox,
        sandbox.folder,
        "run",
        "another/place/pipeline.yaml",
        "--jobs",
        "2",
        seed=2,
        OMP_NUM_THREADS="1",
    )
    made = contents(here)
    assert len(made) > text.count("to: ")
    assert contents(there) == made
    assert (there / "pipeline.lock").read_bytes() == (here / "pipeline.lock").read_bytes()
    for name, options in IN_ONE_GO.items():
        if name.partition(".")[0] in text:
            run(sandbox, here, "convert", "model.onnx", *options, "-o", name, seed=3)
            alone = here / name
            for file in (
                (alone,) if alone.is_file() else (each for each in alone.rglob("*") if each.is_file())
            ):
                assert file.read_bytes() == made[f"build/model/{file.relative_to(here).as_posix()}"], file

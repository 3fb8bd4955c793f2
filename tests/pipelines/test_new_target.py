"""A target is added by the files that docs/CONTRIBUTING.md names, walk 3, and by no others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"

# Existing file -> a line in it, and what replaces the line.
EDITS = {
    "formats/artifact.py": (
        "FORMATS: dict[str, Format] = {",
        'FORMATS: dict[str, Format] = {".npz": "npz", ',
    ),
    "runtimes/registry.py": (
        "KINDS = (\n",
        'KINDS = (\n    Kind("npz", "NumPy", ("npz",), "onnxport.runtimes.npz:NpzRuntime", ("numpy",)),\n',
    ),
    "converters/params.py": (
        "\nPARAMS: Mapping[str, type[BaseModel]] = {",
        '\nclass NpzParams(Params):\n    pass\n\nPARAMS: Mapping[str, type[BaseModel]] = {"npz": NpzParams, ',
    ),
    "pipelines/workers.py": (
        "@_without_start\ndef ort(",
        """@_without_start
def npz(model, params, work):
    from onnxport.converters.npz import convert

    return Product(convert(model, work.output, work.manifest))


@_without_start
def ort(""",
    ),
}
# An archive with the bytes of the model.
NEW = {
    "converters/npz/__init__.py": """
import numpy as np
from onnxport.formats.artifact import Artifact

def convert(model, output, manifest):
    np.savez(output, model=np.frombuffer(model.noted(manifest).to_bytes(), np.uint8))
    return Artifact(output, "npz")
""",
    "runtimes/npz.py": """
import numpy as np
from onnxport.runtimes.ort.runtime import OrtRuntime

class NpzRuntime(OrtRuntime):
    def __init__(self, path, options):
        super().__init__(np.load(path)["model"].tobytes(), options)
""",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package that has the target npz."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / "onnxport"
    shutil.copytree(ROOT / "onnxport", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (line, replaced) in EDITS.items():
        text = (package / name).read_text(encoding="utf-8")
        assert text.count(line) == 1, name
        (package / name).write_text(text.replace(line, replaced), encoding="utf-8")
    for name, text in NEW.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    shutil.copy(DIGITS, folder / "digits.onnx")
    return folder


def run(site: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "onnxport", *arguments],
        cwd=site,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_target_is_proven_measured_and_listed(site: Path) -> None:
    assert "proven: exact" in run(site, "convert", "digits.onnx", "--to", "npz")
    assert "proven: exact" in run(site, "validate", "digits.onnx", "digits.npz")
    rows = json.loads(run(site, "bench", "digits.npz", "--json"))["rows"]
    assert [row["settings"]["runtime"] for row in rows] == ["npz"]
    assert json.loads(run(site, "doctor", "--json"))["targets"]["npz"]["works"]


def test_init_proposes_a_new_target_without_limits_of_time(site: Path) -> None:
    run(site, "init", "digits.onnx", "-o", "pipeline.yaml")
    text = (site / "pipeline.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["targets"]["npz"] == {"to": "npz", "from": "lean"}
    assert "max_latency_ratio" not in text.partition("\n  npz:\n")[2].partition("\n\n")[0]

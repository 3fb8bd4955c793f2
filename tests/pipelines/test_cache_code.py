"""The user's own code: what was made with it is made anew when it, what it imports or what it reads is another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.sandbox import Sandbox

METRIC = """
import onnxport
from shared.distances import largest

LIMITS = open("limits.txt").read()

@onnxport.metric(better="lower")
def worst(reference, candidate):
    return max(largest(reference[name], candidate[name]) for name in reference)
"""
DISTANCES = """
def largest(one, other):
    return abs(one - other).max()
"""
PIPELINE = """
version: 1
model: model.onnx
validate: {metric: metrics:worst, samples: 1}
targets:
  server: {to: ort}
"""
FACTORY = """
from pathlib import Path
from shared.distances import largest

def build():
    import numpy
    from sklearn.linear_model import LinearRegression
    weights = numpy.loadtxt("weights.csv", delimiter=",")
    return LinearRegression().fit(weights, [1.0, 2.0, 4.0])
"""
_EARLIER = 100.0  # seconds; what is written while it is read counts as changed


def write(place: Path, text: str) -> None:
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    os.utime(place, (time.time() - _EARLIER,) * 2)


@pytest.fixture
def project(tmp_path: Path) -> Sandbox:
    sandbox = Sandbox(tmp_path)
    sandbox.environment.pop("ONNXPORT_CACHE", None)
    write(sandbox.folder / "metrics.py", METRIC)
    write(sandbox.folder / "shared" / "__init__.py", "")
    write(sandbox.folder / "shared" / "distances.py", DISTANCES)
    write(sandbox.folder / "limits.txt", "1")
    write(sandbox.folder / "pipeline.yaml", PIPELINE)
    return sandbox


def statuses(sandbox: Sandbox) -> list[str]:
    outcome = sandbox.run("run", "pipeline.yaml", "--json")
    assert outcome.code == 0, outcome.stderr
    return [node["status"] for node in outcome.document["nodes"]]


def test_metric_is_asked_again_when_what_it_imports_or_reads_changes(project: Sandbox) -> None:
    assert statuses(project) == ["made"]
    write(project.folder / "unrelated.py", "")
    write(project.folder / "shared" / "distances.py", DISTANCES.replace("max", "mean"))
    assert statuses(project) == ["made"]
    write(project.folder / "limits.txt", "2")
    assert statuses(project) == ["made"]
    moved = project.folder.with_name("moved")
    shutil.move(project.folder, moved)
    project.folder = moved
    assert statuses(project) == ["cached"]


@pytest.mark.exhaustive
def test_factory_is_called_again_when_what_it_imports_or_reads_changes(project: Sandbox) -> None:
    write(project.folder / "models.py", FACTORY)
    write(project.folder / "weights.csv", "1,2\n3,4\n5,7\n")
    (project.folder / "pipeline.yaml").write_text(
        "version: 1\nmodel: models:build\ntargets: {server: {to: ort}}\n"
    )
    assert statuses(project) == ["made"] * 2
    assert statuses(project) == ["cached"] * 2
    write(project.folder / "weights.csv", "1,2\n3,4\n5,9\n")
    assert statuses(project) == ["made"] * 2
    write(project.folder / "shared" / "distances.py", DISTANCES + "\n")
    assert statuses(project) == ["made", "cached"]  # the model is what it was


_WATCHED = """
import json, sys
from pathlib import Path
from onnxport.core.user_code import Watch
with Watch([Path("known.txt")]) as watch:
    import numpy, metrics
    open("known.txt").read(), open("limits.txt", "rb").read(), open("written.txt", "w").write("x")
    open("changed.txt").read()
    Path("changed.txt").write_text("other")
open("later.txt").read()
print(json.dumps(vars(watch.consulted())))
"""


def test_watch_sees_the_user_s_files_and_no_others(project: Sandbox) -> None:
    for name in ("known.txt", "later.txt", "changed.txt"):
        write(project.folder / name, name)
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(done.stdout)
    assert set(seen["modules"]) == {"metrics", "shared", "shared.distances"}
    assert set(seen["files"]) - {"metrics.py", "shared/__init__.py", "shared/distances.py"} == {
        "limits.txt",
        "changed.txt",
    }
    assert seen["files"]["changed.txt"] == ""
    assert "numpy" in seen["libraries"]
    assert not {"onnxport", "pip"} & set(seen["libraries"])

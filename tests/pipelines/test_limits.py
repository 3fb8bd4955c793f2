"""What is larger or slower than the pipeline allows is not delivered, and the line that asked for it is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxport.cli.commands import cli
from onnxport.core.errors import UsageError
from onnxport.pipelines.config.pipeline import Limits
from onnxport.pipelines.config.reader import read
from onnxport.pipelines.execution import latency as timing
from onnxport.pipelines.execution.limits import check_limits, reason_of, verdict_of
from onnxport.reports.run_report import Latency, Worth
from tests.reports.handmade import passing

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(DIGITS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONNXPORT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], targets: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the cells, by target."""
    Path("pipeline.yaml").write_text(f"version: 1\nmodel: digits.onnx\ntargets:\n{targets}")
    code = cli.main(["run", "pipeline.yaml", "--json"], standalone_mode=False)
    return code, {cell["target"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}


def test_sizes_beyond_a_limit_are_not_delivered(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, cells = ran(
        capsys,
        "  large: {to: ort, max_size: 10kB}\n"
        "  ratio: {to: ort, max_size_ratio: 0.5}\n"
        "  kept: {to: ort, max_size: 1MB, max_size_ratio: 5}\n",
    )
    assert code == 1
    assert {name: cell["verdict"] for name, cell in cells.items()} == {
        "large": "over budget",
        "ratio": "over budget",
        "kept": "proven",
    }
    assert [path.name for path in (project / "build" / "digits").glob("*.ort")] == ["kept.ort"]
    size = (project / "build" / "digits" / "kept.ort").stat().st_size
    companions = sum(file.stat().st_size for file in (project / "build" / "digits").glob("kept.*.config"))
    (limit,) = cells["large"]["limits"]
    assert limit["value"] == size + companions
    much = f"{100 * ((size + companions) / 10_000 - 1):.0f} % too much"
    assert cells["large"]["reason"].startswith("pipeline.yaml:4, targets.large.max_size: ")
    assert cells["large"]["reason"].endswith(much)
    assert "targets.ratio.max_size_ratio" in cells["ratio"]["reason"]
    assert cells["kept"]["reason"] == ""


def test_a_latency_limit_times_what_lowers_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, cells = ran(
        capsys,
        "  slow: {to: ort, max_latency_ratio: 0.0001}\n  kept: {to: ort, max_latency_ratio: 10000}\n",
    )
    assert code == 1
    assert cells["slow"]["verdict"] == "over budget"
    assert "targets.slow.max_latency_ratio" in cells["slow"]["reason"]
    assert cells["kept"]["verdict"] == "proven"
    (kept,) = (project / "cache" / "timings").iterdir()  # one artefact, timed once

    figures = json.loads(kept.read_text())
    figures["latency"]["speedup"] = 0.00001
    kept.write_text(json.dumps(figures))
    code, cells = ran(capsys, "  kept: {to: ort, max_latency_ratio: 10000}\n")
    assert (code, cells["kept"]["limits"][0]["value"]) == (1, pytest.approx(100_000))

    monkeypatch.setattr(timing, "processor", lambda: "a CPU of another machine")
    code, cells = ran(capsys, "  kept: {to: ort, max_latency_ratio: 10000}\n")
    assert (code, cells["kept"]["verdict"]) == (0, "proven")


def test_a_tflite_file_is_timed_beside_the_source_in_onnx_runtime(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, cells = ran(capsys, "  phone: {to: tflite, layout: nhwc, max_latency_ratio: 10000}\n")
    (limit,) = cells["phone"]["limits"]
    assert (code, limit["kept"]) == (0, True)
    assert "ONNX Runtime" in limit["said"]
    assert "LiteRT" in limit["said"]


def test_a_latency_that_nobody_can_measure_is_refused_before_anything_runs(project: Path) -> None:
    text = "version: 1\nmodel: digits.onnx\ntargets:\n  mac:\n    to: coreml\n    max_latency_ratio: 1\n"
    Path("pipeline.yaml").write_text(text)
    with pytest.raises(
        UsageError, match=r"pipeline\.yaml:6, targets\.mac\.max_latency_ratio: .* on its target device"
    ):
        read(Path("pipeline.yaml"))


def test_what_could_not_be_measured_is_not_kept() -> None:
    records = check_limits(
        Limits(latency_ratio=2.0), passing().artifacts[0], Worth(why_not="LiteRT refuses it")
    )
    assert [each.kept for each in records] == [False]
    assert verdict_of(records, "proven") == "inconclusive"
    assert "LiteRT refuses it" in reason_of(records)


def test_the_median_decides_and_the_interval_is_said() -> None:
    latency = Latency(
        runtime="R", before_ms=2.0, after_ms=2.2, speedup=0.9, low=0.8, high=1.1, confidence=0.95, rounds=9
    )
    (over,) = check_limits(Limits(latency_ratio=1.0), passing().artifacts[0], Worth(latency=latency))
    assert not over.kept
    assert "1.11 times the source's time (0.909 to 1.25, 9 rounds" in over.said
    assert "another run may decide otherwise" in over.said
    (clear,) = check_limits(Limits(latency_ratio=0.5), passing().artifacts[0], Worth(latency=latency))
    assert "another run" not in clear.said


def test_an_absolute_latency_holds_on_this_machine(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, cells = ran(
        capsys, "  slow: {to: ort, max_latency: 0.001us}\n  kept: {to: ort, max_latency: 1000s}\n"
    )
    assert code == 1
    assert {name: cell["verdict"] for name, cell in cells.items()} == {
        "slow": "over budget",
        "kept": "proven",
    }
    (limit,) = cells["slow"]["limits"]
    assert limit["limit"] == pytest.approx(1e-6)
    assert "pipeline.yaml:4, targets.slow.max_latency: " in cells["slow"]["reason"]


def test_a_latency_without_a_unit_is_refused(project: Path) -> None:
    Path("pipeline.yaml").write_text(
        "version: 1\nmodel: digits.onnx\ntargets:\n  a: {to: ort, max_latency: 20}\n"
    )
    with pytest.raises(UsageError, match=r"pipeline\.yaml:4, targets\.a\.max_latency.* 20ms"):
        read(Path("pipeline.yaml"))


def test_load_and_memory_have_limits(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, cells = ran(
        capsys,
        "  slow: {to: ort, max_load: 0.001us}\n  fat: {to: ort, max_memory: 1kB}\n"
        "  kept: {to: ort, max_load: 1000s, max_memory: 10GB}\n",
    )
    assert code == 1
    assert {name: cell["verdict"] for name, cell in cells.items()} == {
        "slow": "over budget",
        "fat": "over budget",
        "kept": "proven",
    }
    assert "pipeline.yaml:4, targets.slow.max_load: loading takes " in cells["slow"]["reason"]
    assert "pipeline.yaml:5, targets.fat.max_memory: runtime and model take " in cells["fat"]["reason"]
    load, memory = cells["kept"]["limits"]
    assert 0.1 < load["value"] < 1000, "milliseconds"
    assert memory["value"] == pytest.approx(added_by(project / "build" / "digits" / "kept.ort"), rel=0.3)
    start = cells["kept"]["latency"]["start"]
    assert (start["load_ms"], start["memory"]) == (load["value"], memory["value"])
    assert start["first_ms"] > cells["kept"]["latency"]["after_ms"], "the first run is cold"


def added_by(model: Path) -> int:
    """What a process that runs the model has at its peak, in bytes, above one that only started."""
    if not Path("/proc/self/status").exists():
        pytest.skip("reads Linux' figures")
    program = (
        "import re, sys\n"
        "def read(name): return int(re.search(name + r':\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "bare = read('VmRSS')\n"
        "import numpy, onnxruntime\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "for _ in range(3): session.run(None, {'image': numpy.zeros((3, 1, 8, 8), numpy.float32)})\n"
        "print(1024 * (read('VmHWM') - bare))"
    )
    done = subprocess.run([sys.executable, "-c", program, model], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("limit", ["max_load: 1s", "max_memory: 50MB"])
def test_what_core_ml_takes_cannot_be_measured_here(project: Path, limit: str) -> None:
    text = f"version: 1\nmodel: digits.onnx\ntargets:\n  mac:\n    to: coreml\n    {limit}\n"
    Path("pipeline.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"pipeline\.yaml:6, targets\.mac\.max_.* on its target device"):
        read(Path("pipeline.yaml"))

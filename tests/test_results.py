"""Results in Python: a line in a prompt, a dict that is JSON, a table of pandas and of a notebook."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest

import onnxport
from onnxport.core.errors import MissingDependencyError
from onnxport.deployment.report import DeploymentReport, Placement
from onnxport.inspection.memory.report import MemoryPlan, NodePlan

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits" / "digits.onnx"
LINE = 400


def plan(**changes: Any) -> MemoryPlan:
    return onnxport.plan_memory(DIGITS).model_copy(update=changes)


@pytest.fixture(scope="module")
def bench() -> onnxport.BenchReport:
    return onnxport.bench_models([DIGITS], runs=1, warmup=0, threads=(1, 2))


def test_a_bench_is_a_line_a_dict_and_a_table(bench: onnxport.BenchReport) -> None:
    assert repr(bench).endswith("rows=<2>)")
    assert len(repr(bench)) < LINE
    assert bench.to_dict() == json.loads(bench.model_dump_json())
    frame = bench.to_pandas()
    assert list(frame["settings.threads"]) == [1, 2]
    latencies = [row.latency.median for row in bench.rows if row.latency]
    assert list(frame["latency.median"]) == latencies
    assert bench._repr_html_().count("<tr>") == 3


def test_a_profile_has_its_nodes() -> None:
    report = onnxport.profile_model(DIGITS, runs=3)
    assert list(report.to_pandas()["name"]) == [node.name for node in report.nodes]
    assert len(repr(report)) < LINE


def test_a_plan_has_its_nodes_in_pandas() -> None:
    found = plan()
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc[frame["live"].idxmax(), "name"] == found.peak_node
    assert frame["macs"].sum() == found.macs
    assert len(repr(found)) < LINE


def test_a_notebook_runs_no_markup_of_a_model() -> None:
    node = NodePlan(
        name="<img src=x onerror=alert(1)>", operator="A", macs=0, read=0, weights=0, written=0, live=0
    )
    shown = plan(nodes=(node,) * 40)._repr_html_()
    assert "<img" not in shown
    assert "&lt;img" in shown
    assert "10 more rows" in shown


def test_empty_columns_are_not_shown() -> None:
    placed = Placement(runtime="ort-cpu", title="ONNX Runtime", how="asked", extent="all", version="1")
    report = DeploymentReport(command="c", model="m.onnx", format="onnx", strict=False, placements=(placed,))
    assert "partitions" not in report._repr_html_()
    assert re.findall("<th>(.*?)</th>", report._repr_html_())[:2] == ["runtime", "extent"]


def test_without_pandas_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match="pip install pandas"):
        plan().to_pandas()


def test_a_proof_is_a_dict() -> None:
    report = onnxport.validate_model(DIGITS, DIGITS)
    assert report.to_dict()["verdict"] == "proven"
    json.dumps(report.to_dict(), allow_nan=False)

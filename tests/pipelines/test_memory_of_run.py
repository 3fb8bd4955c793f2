"""A run keeps little of each node: the reports of hundreds are packed until the run's own report is written."""

from __future__ import annotations

import gc
from pathlib import Path

import onnx
from onnx import numpy_helper

from onnxport.core.packing import Packed
from onnxport.pipelines.execution.run import run
from onnxport.pipelines.executors.base import Unwatched
from onnxport.reports.pipeline_report import NodeRecord
from onnxport.reports.run_report import RunReport

DIGITS = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
MODELS = 6


class Counting(Unwatched):
    """Counts the reports that are alive when each node is done."""

    def __init__(self) -> None:
        self.alive: list[int] = []

    def node(self, record: NodeRecord) -> None:
        gc.collect()
        # By type: isinstance asks the objects, and some of other libraries answer by loading a GPU.
        self.alive.append(sum(type(each) is RunReport for each in gc.get_objects()))


def test_reports_of_finished_nodes_are_not_kept_open(tmp_path: Path) -> None:
    model = onnx.load(DIGITS)
    weight = model.graph.initializer[0]
    for number in range(MODELS):
        numbers = numpy_helper.to_array(weight).copy()
        numbers.flat[0] += 0.01
        weight.CopyFrom(numpy_helper.from_array(numbers, weight.name))
        onnx.save(model, tmp_path / f"m{number}.onnx")
    models = "".join(f"  m{number}: m{number}.onnx\n" for number in range(MODELS))
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"version: 1\nmodels:\n{models}targets:\n  server: {{to: ort}}\n")
    for _ in range(2):  # made, then from the cache
        watcher = Counting()
        report = run(file, watcher=watcher)
        assert [cell.verdict for cell in report.cells] == ["proven"] * MODELS
        assert all(node.run is not None and node.run.artifacts[0].path for node in report.nodes)
        assert len(watcher.alive) == MODELS
        assert watcher.alive[-1] <= watcher.alive[0] + 1
        del report


def test_a_packed_value_opens_as_it_was() -> None:
    value = {"loss": float("nan"), "names": ("a", "b"), "text": "x" * 10_000}
    packed = Packed(value)
    assert packed.open()["names"] == ("a", "b")
    assert packed.open()["loss"] != packed.open()["loss"]
    assert len(packed._content) < 1000

"""`--jobs N`: what several processes make is what one makes, and a process that dies takes nothing along."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from onnxport.core.child_process import ChildBug, ChildDied
from onnxport.core.errors import CannotConvertError, Refusal
from onnxport.pipelines.execution.run import run
from onnxport.pipelines.executors.base import Result, Unwatched
from onnxport.pipelines.executors.processes import Processes
from onnxport.pipelines.executors.task import Task
from tests.pipelines.executors.acting import spans, task

DIGITS = Path(__file__).parents[3] / "fixtures" / "digits" / "digits.onnx"


def done(tasks: Iterable[Task], jobs: int = 2, limit: int | None = None) -> dict[str, Result]:
    with Processes(jobs, limit, Unwatched()) as processes:
        submitted = [processes.submit(each) for each in tasks]
        results = [processes.next() for _ in submitted]
    return {result.task.node: result for result in results}


def test_errors_arrive_as_they_are_and_end_nothing_but_their_task(tmp_path: Path) -> None:
    acts = ("refuse", "bug", "copy", "unpicklable", "crash")
    found = done(task(tmp_path, name, does=name) for name in acts)
    assert found["copy"].report is not None
    assert (tmp_path / "copy" / "model.onnx").is_file()
    refusal = found["refuse"].failure
    assert isinstance(refusal, CannotConvertError)
    assert refusal.refusals == (Refusal("Loop", "decode", "carries a sequence"),)
    bug = found["bug"].failure
    assert isinstance(bug, ZeroDivisionError)
    assert "in _bug" in bug.__notes__[0]
    assert isinstance(found["unpicklable"].failure, ChildBug)
    assert "Local: of a class that nobody else knows" in str(found["unpicklable"].failure)
    assert isinstance(found["crash"].failure, ChildDied)
    assert "SIGSEGV" in str(found["crash"].failure)


def test_what_a_killed_process_did_is_done_again_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tasks = [
        task(tmp_path, "dies", does="be killed once", log=log, seconds=0.3),
        *(task(tmp_path, name, log=log, seconds=1.5) for name in "abc"),
    ]
    found = done(tasks)
    assert all(result.report is not None for result in found.values())
    assert (found["dies"].task.room / "model.onnx").read_bytes() == (
        tmp_path / "a" / "model.onnx"
    ).read_bytes()
    rows = spans(log)
    (again,) = (row for row in rows if row[0] == "be killed once")
    assert all(row is again or row[2] <= again[1] or row[1] >= again[2] for row in rows)


def test_no_more_runs_at_a_time_than_memory_holds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done((task(tmp_path, name, log=log, seconds=0.3) for name in "abc"), limit=1)
    assert all(first[2] <= second[1] for first, second in pairwise(spans(log)))


def test_nothing_computes_while_a_product_is_timed(tmp_path: Path) -> None:
    log = tmp_path / "timed"
    done(task(tmp_path, name, log=log, seconds=0.5) for name in "abc")
    rows = spans(log)
    assert sum(row[0] == "timed" for row in rows) == 3
    for timed in (row for row in rows if row[0] == "timed"):
        assert all(row is timed or row[2] <= timed[1] or row[1] >= timed[2] for row in rows)


def test_a_process_asks_the_reference_once_for_all_artefacts_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    shutil.copy(DIGITS, tmp_path / "digits.onnx")
    file.write_text("""
version: 1
model: digits.onnx
targets:
  one: {to: ort, matrix: {level: [disable, basic, extended, all]}}
  two: {to: tflite, matrix: {layout: [keep, nhwc]}}
""")
    report = run(file, jobs=2)
    assert [cell.verdict for cell in report.cells] == ["proven"] * 6
    timings = [timing for node in report.nodes if node.run for timing in node.run.artifacts[0].timings]
    references = {timing.seconds for timing in timings if timing.step == "reference"}
    # One for each process; another one may have taken the place of a process that the system killed.
    assert 1 <= len(references) < 6

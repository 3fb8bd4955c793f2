"""The table of real models with `--fit gpu`: what it counts, which rows it makes again, and the page of the rows."""

from argparse import Namespace
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from benchmarks import gpu_fit, webgpu_fit
from benchmarks.gpu_fit import Row, page
from benchmarks.kept_rows import due, fill, read, rules
from fixtures import models

ROW = Row("mtcnn/pnet.onnx", whole=True, size=1.0, latency=1.2, interval=(1.1, 1.3), files="0", rules="old")


def test_the_page_is_made_of_the_rows_beside_it() -> None:
    rows = read(gpu_fit.ROWS, Row)
    assert gpu_fit.DOCUMENT.read_text(encoding="utf-8") == page(list(rows.values()))


def test_the_page_of_webgpu_is_made_of_the_rows_beside_it() -> None:
    rows = read(webgpu_fit.ROWS, webgpu_fit.Row)
    assert webgpu_fit.DOCUMENT.read_text(encoding="utf-8") == webgpu_fit.page(list(rows.values()))


def test_rows_of_other_rules_are_counted_and_made_again_on_request() -> None:
    rows = {row.key: row for row in (ROW, replace(ROW, key="u2netp/u2netp.onnx", rules=rules()))}
    assert "| rows that hold for one version of the code | 1 of 2 | all |" in page(list(rows.values()))
    assert "| rows that hold for one version of the code | 2 of 2 | all |" in page([ROW, ROW])
    keys = [*rows, "mtcnn/rnet.onnx"]
    assert due(keys, rows, again=(), now=rules(), stale=False) == ["mtcnn/rnet.onnx"]
    assert due(keys, rows, again=(), now=rules(), stale=True) == ["mtcnn/rnet.onnx", "mtcnn/pnet.onnx"]
    assert due(keys, rows, again=("u2netp/u2netp.onnx",), now=rules(), stale=False) == keys[:0:-1]


def test_a_row_whose_files_are_made_again_byte_by_byte_is_confirmed_and_not_measured(tmp_path: Path) -> None:
    """Measurements of the rows, one of the same files, one of others, one of an age that kept no digest."""
    rows = [replace(ROW, key=key, files=files) for key, files in (("same", "1"), ("other", "2"), ("old", ""))]
    measured: list[str] = []

    def measure(key: str) -> Row:
        measured.append(key)
        return replace(ROW, key=key, latency=0.5, files="1")

    keys = [row.key for row in rows]
    given = Namespace(again=[], stale=True, minutes=inf)
    fill(
        tmp_path / "p.md", {row.key: row for row in rows}, keys, given, "new", measure, lambda key: "1", page
    )
    assert measured == ["other", "old"]
    kept = read(tmp_path / "p.jsonl", Row)
    assert [(row.latency, row.rules) for row in kept.values()] == [(1.2, "new"), (0.5, "new"), (0.5, "new")]


def test_a_limit_that_a_row_misses_is_counted() -> None:
    assert "| CPU latency at most 1.1 | 0 of 1, largest 1.20 | all |" in page([ROW])


@pytest.mark.real
def test_integers_are_no_float_model() -> None:
    keys = gpu_fit.float_models()
    assert set(read(gpu_fit.ROWS, Row)) <= set(keys)
    assert "mtcnn/pnet.onnx" in keys
    assert "minilm-int8/model.onnx" not in keys
    assert "smart-turn/smart-turn-v3.2-cpu.onnx" not in keys


@pytest.mark.real
def test_rows_of_webgpu_are_of_models_up_to_16_mb() -> None:
    assert set(read(webgpu_fit.ROWS, webgpu_fit.Row)) <= set(webgpu_fit.subjects())


@pytest.mark.real
def test_the_target_of_webgpu_counts_34_float_models() -> None:
    keys = [key for key in webgpu_fit.subjects() if gpu_fit.is_float(models.path(key))]
    assert len(keys) == 34
    assert {*webgpu_fit.subjects()} - {*keys} == {*webgpu_fit._INTEGERS}

"""The table of real models with `--fit gpu`: what it counts, which rows it makes again, and the page of the rows."""

from dataclasses import replace

import pytest

from benchmarks import gpu_fit, webgpu_fit
from benchmarks.gpu_fit import Row, page, rules
from benchmarks.kept_rows import due, read

ROW = Row("mtcnn/pnet.onnx", whole=True, size=1.0, latency=1.2, interval=(1.1, 1.3), rules="old")


def test_the_page_is_made_of_the_rows_beside_it() -> None:
    rows = read(gpu_fit.ROWS, Row)
    assert gpu_fit.DOCUMENT.read_text(encoding="utf-8") == page(list(rows.values()))


def test_the_page_of_webgpu_is_made_of_the_rows_beside_it() -> None:
    rows = read(webgpu_fit.ROWS, webgpu_fit.Row)
    assert webgpu_fit.DOCUMENT.read_text(encoding="utf-8") == webgpu_fit.page(list(rows.values()))


def test_rows_of_other_rules_are_counted_and_made_again_on_request() -> None:
    rows = {row.key: row for row in (ROW, replace(ROW, key="u2netp/u2netp.onnx", rules=rules()))}
    assert "| measured with the same rules | 1 of 2 | all |" in page(list(rows.values()))
    assert "| measured with the same rules | 2 of 2 | all |" in page([ROW, ROW])
    keys = [*rows, "mtcnn/rnet.onnx"]
    assert due(keys, rows, again=(), now=rules(), stale=False) == ["mtcnn/rnet.onnx"]
    assert due(keys, rows, again=(), now=rules(), stale=True) == ["mtcnn/rnet.onnx", "mtcnn/pnet.onnx"]
    assert due(keys, rows, again=("u2netp/u2netp.onnx",), now=rules(), stale=False) == keys[:0:-1]


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

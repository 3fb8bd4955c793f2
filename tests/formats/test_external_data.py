"""The size of a model is known without parsing it."""

from __future__ import annotations

from pathlib import Path

import onnx

from fixtures import graphs
from onnxport.formats.external_data import stored_bytes


def test_data_files_count_each_once_wherever_the_model_is(tmp_path: Path) -> None:
    path = graphs.external_data(tmp_path)
    whole = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert (tmp_path / "model.onnx.data").stat().st_size > 0
    assert stored_bytes(path) == whole
    assert stored_bytes(path.read_bytes(), tmp_path) == whole


def test_a_model_of_one_file_is_as_large_as_that(tmp_path: Path) -> None:
    onnx.save(graphs.mlp(), tmp_path / "m.onnx")
    assert stored_bytes(tmp_path / "m.onnx") == (tmp_path / "m.onnx").stat().st_size


def test_a_data_file_that_is_not_there_counts_nothing(tmp_path: Path) -> None:
    path = graphs.external_data(tmp_path)
    (tmp_path / "model.onnx.data").unlink()
    assert stored_bytes(path) == path.stat().st_size

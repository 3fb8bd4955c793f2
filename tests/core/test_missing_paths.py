"""A path that does not exist is answered with the nearest name that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxport.core.missing_paths import missing_path, nearest_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model.onnx", "model.tflite", "rows.npz", "Café.onnx", "samples/1.png", ".model.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("modle.onnx", "model.onnx"),
        ("Model.onnx", "model.onnx"),
        ("model.onx", "model.onnx"),
        ("model.ort", "model.onnx"),
        ("modl.tflite", "model.tflite"),
        ("row.npz", "rows.npz"),
        ("cafe.onnx", "Café.onnx"),
        ("sample", "samples"),
        ("sample/1.png", "samples/1.png"),
        ("sampels/1.jpg", "samples/1.png"),
    ],
)
def test_a_near_name_is_found(folder: Path, given: str, near: str) -> None:
    assert nearest_path(folder / given) == folder / near


@pytest.mark.parametrize(
    "given", ["nowhere.onnx", "none/model.onnx", "x.npz", "model.onnx/inside/it", "a\0b"]
)
def test_other_names_are_not_near(folder: Path, given: str) -> None:
    assert nearest_path(folder / given) is None


def test_the_error_asks_or_gives_the_fix_where_nothing_is_near(folder: Path) -> None:
    near, far = (missing_path(folder / name, fix="give one") for name in ("modle.onnx", "nowhere.onnx"))
    assert str(near) == f"{folder}/modle.onnx does not exist; did you mean '{folder}/model.onnx'?"
    assert str(far) == f"{folder}/nowhere.onnx does not exist; give one"


def test_a_folder_that_may_not_be_listed_has_no_near_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", refuse)
    assert nearest_path(folder / "modle.onnx") is None

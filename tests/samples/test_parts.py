"""What of a folder calibrates, and what is held back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxport.formats.artifact import TensorSpec
from onnxport.samples.preprocessing import Preprocessing
from onnxport.samples.readers import find_samples
from onnxport.samples.split import EVERYTHING, Parts, held_back

ONE = (TensorSpec("x", "float32", ("N", 4)),)


def parts(folder: Path, limit: int = EVERYTHING, seed: int = 0, holds_back: bool = True) -> Parts:
    return Parts.of(folder, ONE, settings=Preprocessing(), limit=limit, seed=seed, holds_back=holds_back)


def names(files: tuple[object, ...]) -> list[str]:
    return [file.label for file in files]  # type: ignore[attr-defined]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(200):
        (tmp_path / f"{number}.npy").touch()
    return tmp_path


def test_calibration_never_sees_what_is_held_back_and_the_judge_gets_just_that(folder: Path) -> None:
    found = parts(folder)
    assert len(found.held_back) == 20
    assert not set(names(found.calibration)) & set(names(found.held_back))
    assert len(found.calibration) == 180
    assert names(held_back(find_samples(folder, ONE, EVERYTHING))) == names(found.held_back)


def test_what_is_held_back_comes_from_all_over_a_folder_that_is_sorted_by_class(folder: Path) -> None:
    places = [int(name.removesuffix(".npy")) for name in names(parts(folder).held_back)]
    assert np.bincount(np.array(places) // 50).tolist() == [5, 5, 5, 5]


@pytest.mark.parametrize(
    ("count", "spared"), [(1, 0), (9, 0), (10, 2), (14, 2), (15, 3), (99, 19), (101, 20)]
)
def test_one_of_five_is_held_back_from_ten_on(tmp_path: Path, count: int, spared: int) -> None:
    for number in range(count):
        (tmp_path / f"{number}.npy").touch()
    found = parts(tmp_path)
    assert (len(found.calibration), len(found.held_back)) == (count - spared, spared)
    assert len(parts(tmp_path, holds_back=False).calibration) == count


def test_the_limit_draws_with_the_seed_and_keeps_the_order(folder: Path) -> None:
    first, again, other = (names(parts(folder, 30, seed).calibration) for seed in (1, 1, 2))
    assert len(first) == 30
    assert first == again != other
    assert first == sorted(first, key=lambda name: int(name.removesuffix(".npy")))
    assert len(parts(folder, 30).held_back) == 20


def test_a_state_that_files_lack_begins_with_zeros(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((2, 4), np.float32))
    inputs = (*ONE, TensorSpec("h", "float32", (1, "N", 8)))
    found = Parts.of(
        tmp_path,
        inputs,
        settings=Preprocessing(),
        limit=9,
        seed=0,
        holds_back=True,
        optional=frozenset({"h"}),
    )
    (file,) = found.calibration
    np.testing.assert_array_equal(file.load().feeds["h"], np.zeros((1, 2, 8)))

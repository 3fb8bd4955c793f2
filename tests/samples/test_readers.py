"""The user's own inputs."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
from PIL import Image

from onnxport.core.errors import InputError
from onnxport.formats.artifact import TensorSpec
from onnxport.samples.readers import find_samples

ONE = (TensorSpec("x", "float32", ("N", 4)),)
TWO = (TensorSpec("x", "float32", ("N", 4)), TensorSpec("ids", "int64", ("N",)))
X = np.arange(8, dtype=np.float32).reshape(2, 4)
IDS = np.array([1, 2])


def test_npz_keys_are_input_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, ids=IDS, label=np.array([0]))
    (file,) = find_samples(tmp_path, TWO, 10)
    sample = file.load()
    assert (sample.label, sample.source) == ("a.npz", "samples")
    assert sample.feeds.keys() == {"x", "ids"}
    np.testing.assert_array_equal(sample.feeds["x"], X)


def test_npy_is_for_models_of_one_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    (file,) = find_samples(tmp_path, ONE, 10)
    np.testing.assert_array_equal(file.load().feeds["x"], X)
    (file,) = find_samples(tmp_path, TWO, 10)
    with pytest.raises(InputError, match=r"a\.npy has one array: the model takes \['x', 'ids'\]"):
        file.load()


def test_data_sets_of_onnx_go_by_the_order_of_the_graph(tmp_path: Path) -> None:
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    for number, array in enumerate((X, IDS)):
        (folder / f"input_{number}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    for asked in (tmp_path, folder):
        (file,) = find_samples(asked, TWO, 10)
        np.testing.assert_array_equal(file.load().feeds["ids"], IDS)


def test_files_come_in_the_order_a_person_counts_and_no_more_than_asked(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        np.save(tmp_path / f"img{number}.npy", X)
    (tmp_path / "readme.txt").write_text("not a sample")
    found = find_samples(tmp_path, ONE, 2)
    assert [file.path.name for file in found] == ["img1.npy", "img9.npy"]


def test_a_folder_without_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"holds no inputs: it is empty; put images, \.npz, \.npy, \.safetensors, \.csv or"
    ):
        find_samples(tmp_path, ONE, 10)
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        find_samples(tmp_path / "nowhere", ONE, 10)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": X}, r"a\.npz lacks the input 'x': it has 'y'"),
        (
            {"x": X.astype(np.float64)},
            r"'x' in .*a\.npz is float64: the model takes float32; save it as float32",
        ),
        ({"x": X.T}, r"'x' in .*a\.npz has shape \[4, 2\]: the model takes x: float32\[N, 4\]"),
        ({"x": X[0]}, r"has shape \[4\]"),
    ],
)
def test_bad_arrays_are_named_with_file_and_key(
    tmp_path: Path, arrays: dict[str, object], message: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    (file,) = find_samples(tmp_path, ONE, 10)
    with pytest.raises(InputError, match=message):
        file.load()


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
def test_unreadable_files_and_pickles_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 neither")
    with pytest.raises(InputError, match="cannot be read"):
        find_samples(tmp_path, ONE, 10)[0].load()
    np.save(tmp_path / "object.npy", np.array([{"code": "runs"}], dtype=object), allow_pickle=True)
    (tmp_path / name).unlink()
    shutil.move(tmp_path / "object.npy", tmp_path / "a.npy")
    with pytest.raises(InputError, match="pickles"):
        find_samples(tmp_path, ONE, 10)[-1].load()


def test_a_broken_tensor_in_a_data_set_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    (folder / "input_0.pb").write_bytes(b"\xff\xff")
    with pytest.raises(InputError, match=r"input_0\.pb cannot be read"):
        find_samples(tmp_path, ONE, 10)[0].load()
    (folder / "input_0.pb").rename(folder / "input_7.pb")
    with pytest.raises(InputError, match=r"input_7\.pb belongs to no input: the model has 1"):
        find_samples(tmp_path, ONE, 10)[0].load()


@pytest.mark.parametrize("name", ["a.npz", "a.npy"])
def test_junk_is_no_occasion_for_numpys_advice_on_pickles(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"junk")
    with pytest.raises(InputError, match=f"its content is not that of an {name[1:]} file") as refused:
        find_samples(tmp_path, ONE, 10)[0].load()
    assert "pickle" not in str(refused.value)


def safetensors_file(path: Path, dtype: str, shape: list[int], data: bytes) -> None:
    """Written by hand after the format's specification: length of the header, header, data."""
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def test_safetensors_keys_are_input_names(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"x": X, "ids": IDS, "label": IDS}, tmp_path / "a.safetensors")
    (file,) = find_samples(tmp_path, TWO, 10)
    feeds = file.load().feeds
    assert feeds.keys() == {"x", "ids"}
    np.testing.assert_array_equal(feeds["x"], X)
    np.testing.assert_array_equal(feeds["ids"], IDS)


@pytest.mark.parametrize(
    ("dtype", "model", "data", "expected"),
    [
        ("BF16", "bfloat16", b"\x80\x3f\x00\x40\x80\x3f\x00\x40", [1.0, 2.0, 1.0, 2.0]),
        ("F16", "float16", b"\x00\x3c" * 4, [1.0] * 4),
        ("BOOL", "bool", b"\x01\x00\x01\x00", [True, False, True, False]),
        ("U8", "uint8", b"\x01\x02\x03\xff", [1, 2, 3, 255]),
    ],
)
def test_every_safetensors_dtype_is_told_by_its_name(
    tmp_path: Path, dtype: str, model: str, data: bytes, expected: list[float]
) -> None:
    safetensors_file(tmp_path / "a.safetensors", dtype, [1, 4], data)
    (file,) = find_samples(tmp_path, [TensorSpec("x", model, ("N", 4))], 10)
    assert file.load().feeds["x"].astype(float).tolist() == [[float(value) for value in expected]]


def test_a_bfloat16_tensor_for_a_float_input_is_named_with_the_way_out(tmp_path: Path) -> None:
    safetensors_file(tmp_path / "a.safetensors", "BF16", [1, 4], bytes(8))
    with pytest.raises(InputError, match=r"'x' in .*a\.safetensors is bfloat16: .*; save it as float32"):
        find_samples(tmp_path, ONE, 10)[0].load()


@pytest.mark.parametrize("kept", [0, 4, 20, -1])
def test_damaged_safetensors_are_named(tmp_path: Path, kept: int) -> None:
    safetensors_file(tmp_path / "a.safetensors", "F32", [1, 4], bytes(16))
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(whole[:kept])
    with pytest.raises(InputError, match=r"a\.safetensors cannot be read"):
        find_samples(tmp_path, ONE, 10)[0].load()


def test_all_kinds_may_lie_in_one_folder_each_of_a_size_of_its_own(tmp_path: Path) -> None:
    spec = TensorSpec("x", "float32", ("N", 3, "H", "W"))
    for number, (suffix, side) in enumerate(
        [("npz", 8), ("npy", 9), ("safetensors", 10), ("png", 11), ("PNG", 12)]
    ):
        path, array = tmp_path / f"s{number + 7}.{suffix}", np.zeros((1, 3, side, 5), np.float32)
        if suffix == "npz":
            np.savez(path, x=array)
        elif suffix == "npy":
            np.save(path, array)
        elif suffix == "safetensors":
            safetensors.numpy.save_file({"x": array}, path)
        else:
            Image.new("RGB", (5, side)).save(path, format="png")
    (tmp_path / "README.md").write_text("no sample")
    (tmp_path / "preprocess.yaml").write_text("")
    found = find_samples(tmp_path, [spec], 4)
    assert [file.label for file in found] == ["s7.npz", "s8.npy", "s9.safetensors", "s10.png"]
    assert [file.load().feeds["x"].shape[2] for file in find_samples(tmp_path, [spec], 9)] == [
        8,
        9,
        10,
        11,
        12,
    ]


def test_a_folder_of_nothing_but_unknown_files_names_them(tmp_path: Path) -> None:
    for name in ("a.txt", "b.doc", "c10.raw", "c9.raw", ".hidden.npy"):
        (tmp_path / name).write_text("")
    with pytest.raises(
        InputError, match=r"holds no inputs: a\.txt, b\.doc, c9\.raw and 1 more cannot be read"
    ):
        find_samples(tmp_path, ONE, 10)


def test_a_state_may_be_left_out_and_is_not_what_a_lone_array_is_for(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    state = TensorSpec("h", "float32", (1, "N", 8))
    (file,) = find_samples(tmp_path, (state, *ONE), 10, optional=frozenset({"h"}))
    sample = file.load()
    assert list(sample.feeds) == ["h", "x"]
    assert sample.begun == ("h",)
    assert sample.feeds["h"].dtype == np.float32
    np.testing.assert_array_equal(sample.feeds["h"], np.zeros((1, len(X), 8)))


def test_rows_of_one_file_are_sets_of_the_batch_that_the_model_takes(tmp_path: Path) -> None:
    rows = np.arange(28, dtype=np.float32).reshape(7, 4)
    np.savez(tmp_path / "all.npz", x=rows, ids=np.arange(7))
    found = find_samples(tmp_path / "all.npz", TWO, 10)
    assert [file.label for file in found] == [f"all.npz[{number}]" for number in range(7)]
    for number, file in enumerate(pickle.loads(pickle.dumps(found))):  # as another process gets them
        feeds = file.load().feeds
        np.testing.assert_array_equal(feeds["x"], rows[number : number + 1])
        np.testing.assert_array_equal(feeds["ids"], [number])
    fixed = [TensorSpec("x", "float32", (3, 4))]
    found = find_samples(tmp_path / "all.npz", fixed, 10)
    assert [file.label for file in found] == ["all.npz[0-2]", "all.npz[3-5]"], "the last row fills no batch"
    np.testing.assert_array_equal(found[1].load().feeds["x"], rows[3:6])


def test_a_file_is_read_once_for_all_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "all.npz", x=np.ones((50, 4), np.float32))
    found = pickle.loads(pickle.dumps(find_samples(tmp_path / "all.npz", ONE, 100)))
    opened: list[object] = []
    load = np.load
    monkeypatch.setattr(np, "load", lambda *given, **options: opened.append(given) or load(*given, **options))
    for file in found:
        file.load()
    assert len(found) == 50
    assert len(opened) <= 1


@pytest.mark.parametrize(
    ("arrays", "inputs"),
    [
        ({"x": X[:1]}, ONE),
        ({"x": X, "ids": np.arange(3)}, TWO),  # ragged: x[2, 4] goes with ids[3]
        ({"x": X}, (TensorSpec("x", "float32", (2, 4)),)),
        ({"x": np.array(1.0, np.float32)}, (TensorSpec("x", "float32", ()),)),
    ],
)
def test_a_file_of_one_set_is_one(
    tmp_path: Path, arrays: dict[str, Any], inputs: Sequence[TensorSpec]
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    (file,) = find_samples(tmp_path / "a.npz", inputs, 10)
    assert file.label == "a.npz"
    assert file.load().feeds.keys() == arrays.keys()


def test_stacked_samples_in_a_folder_are_told_how_to_be_given(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((7, 4), np.float32))
    (file,) = find_samples(tmp_path, [TensorSpec("x", "float32", (1, 4))], 10)
    with pytest.raises(InputError, match="give the file itself: its rows are sets"):
        file.load()


def test_an_archive_that_holds_a_name_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in (1, 2):
            with archive.open("x.npy", "w") as member:
                np.save(member, np.full((1, 4), value, np.float32))
    with pytest.raises(InputError, match=r"a\.npz has 'x' twice"):
        find_samples(tmp_path, ONE, 10)[0].load()

"""Arrays are written under every name that an archive holds; numpy.savez takes some names for its parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxport.core.errors import InputError
from onnxport.core.npz_writer import write_npz

NAMES = (
    "file",
    "allow_pickle",
    "x",
    "",
    "a/b",
    "../up",
    "/root",
    "\x1b[2J\n\u202e",
    "é",
    "n" * 60_000,
)


def test_every_name_is_read_again(tmp_path: Path) -> None:
    arrays = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(NAMES)}
    arrays |= {"words": np.array(["a", "bc"]), "scalar": np.array(5), "turned": np.arange(6).reshape(2, 3).T}
    write_npz(tmp_path / "a.npz", arrays)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        assert set(found.files) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype


def test_the_same_arrays_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, now in (("a.npz", 1.0e9), ("b.npz", 1.7e9)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        write_npz(tmp_path / name, {"x": np.arange(5), "y": np.zeros(3)})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(("name", "why"), [("n" * 65_532, "65,535 bytes"), ("a\0b", "NUL")])
def test_a_name_that_no_archive_holds_is_refused(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why) as caught:
        write_npz(tmp_path / "a.npz", {name: np.zeros(1)})
    assert len(str(caught.value)) < 300
    assert not list(tmp_path.iterdir())

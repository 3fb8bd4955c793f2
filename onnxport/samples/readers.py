"""The user's own inputs, from a folder: `.npz`, `.npy`, and the `test_data_set_*` folders of ONNX models.

Files are found first and loaded one at a time, so that a large folder never lies in memory whole.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxport.artifact import TensorSpec
from onnxport.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]

_DATA_SET = "test_data_set_"
# What numpy raises for files that are damaged, of another kind, or pickles.
_BROKEN = (OSError, ValueError, EOFError, zipfile.BadZipFile)
_KINDS = ".npz files, .npy files and test_data_set_* folders"


@dataclass(frozen=True)
class Sample:
    """One set of inputs.

    Attributes:
        label: its file's name, or "image, batch 3" for a generated one.
        feeds: input name to array.
        source: where it came from.
    """

    label: str
    feeds: Mapping[str, Array]
    source: Literal["samples", "generated"]


@dataclass(frozen=True)
class SampleFile:
    """One set of inputs on disk, still to be loaded."""

    path: Path
    inputs: tuple[TensorSpec, ...]

    def load(self) -> Sample:
        """Reads the file and checks it against the model's inputs.

        Raises:
            InputError: unreadable, an input missing, or one of a wrong dtype or shape; file and key are named.
        """
        if self.path.is_dir():
            arrays = _read_data_set(self.path, self.inputs)
        elif self.path.suffix == ".npz":
            arrays = _read_npz(self.path)
        else:
            arrays = _read_npy(self.path, self.inputs)
        feeds = {spec.name: _checked(arrays, spec, self.path) for spec in self.inputs}
        return Sample(self.path.name, feeds, "samples")


def find_samples(folder: Path, inputs: Sequence[TensorSpec], limit: int) -> tuple[SampleFile, ...]:
    """The first `limit` sets of inputs in `folder`, by name ("img2" before "img10").

    Raises:
        InputError: no such folder, or nothing in it that is known.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no folder",
            why="" if folder.exists() else "it does not exist",
            fix=f"--inputs takes a folder with {_KINDS}",
        )
    if folder.name.startswith(_DATA_SET):
        found = [folder]
    else:
        found = sorted(filter(_is_sample, folder.iterdir()), key=lambda path: _natural(path.name))
    if not found:
        raise InputError(f"{folder} holds no inputs", fix=f"put {_KINDS} into it")
    return tuple(SampleFile(path, tuple(inputs)) for path in found[:limit])


def _is_sample(path: Path) -> bool:
    if path.is_dir():
        return path.name.startswith(_DATA_SET)
    return path.suffix in (".npz", ".npy")


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(digits or -1), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except _BROKEN as error:
        raise _unreadable(path, error) from error


def _read_npy(path: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    if len(inputs) != 1:
        raise InputError(
            f"{path} holds one array",
            why=f"the model takes {[spec.name for spec in inputs]}",
            fix="use .npz files with these keys",
        )
    try:
        array = np.load(path, allow_pickle=False)
    except _BROKEN as error:
        raise _unreadable(path, error) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is an archive of arrays", fix="rename it to .npz")
    return {inputs[0].name: array}


def _read_data_set(folder: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """input_N.pb is the N-th input of the graph; a tensor that carries an input's name goes by that."""
    import google.protobuf.message
    import onnx

    arrays: dict[str, Array] = {}
    for path in sorted(folder.glob("input_*.pb"), key=lambda path: _natural(path.name)):
        number = path.stem.removeprefix("input_")
        if not number.isdigit() or int(number) >= len(inputs):
            raise InputError(f"{path} belongs to no input", why=f"the model has {len(inputs)}")
        try:
            tensor = onnx.TensorProto.FromString(path.read_bytes())
            arrays[inputs[int(number)].name] = onnx.numpy_helper.to_array(tensor)
        except (OSError, ValueError, TypeError, KeyError, google.protobuf.message.DecodeError) as error:
            raise _unreadable(path, error) from error
    return arrays


def _unreadable(path: Path, error: Exception) -> InputError:
    why = " ".join(str(error).split())[:200] or type(error).__name__
    if "Object arrays" in why:
        return InputError(
            f"{path} cannot be read",
            why="arrays of objects (pickles) are not loaded",
            fix="save it with arrays of numbers or strings",
        )
    if "pickle" in why:  # what numpy takes any unknown content for
        return InputError(f"{path} cannot be read", why=f"its content is not that of an {path.suffix} file")
    return InputError(f"{path} cannot be read", why=why)


def _checked(arrays: Mapping[str, Array], spec: TensorSpec, path: Path) -> Array:
    if spec.name not in arrays:
        held = ", ".join(repr(name) for name in arrays) or "nothing"
        raise InputError(f"{path} lacks the input {spec.name!r}", why=f"it holds {held}")
    array = arrays[spec.name]
    where = f"{spec.name!r} in {path}"
    dtype = "string" if array.dtype.kind in "OUS" else array.dtype.name
    if dtype != spec.dtype:
        raise InputError(
            f"{where} is {dtype}", why=f"the model takes {spec.dtype}", fix=f"save it as {spec.dtype}"
        )
    fits = array.ndim == len(spec.shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        raise InputError(f"{where} has shape {list(array.shape)}", why=f"the model takes {spec}")
    return array

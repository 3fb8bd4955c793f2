"""The user's inputs in a folder: arrays, tables, images, and the `test_data_set_*` folders of ONNX models.

Files are listed first and loaded one at a time, because a folder may be larger than the memory. docs/guide/inputs.md
lists the file types.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, printable
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.samples import images, tables
from onnxport.samples.folders import DATA_SET, IMAGES, Entry, natural, sample_entries
from onnxport.samples.preprocessing import Preprocessing
from onnxport.samples.rows import split_rows
from onnxport.samples.sizes import OpenSizes

# Exceptions of NumPy for files that are damaged, of another kind, or pickles. An archive may be encrypted
# (RuntimeError), use an unknown compression, or claim more bytes than the machine has.
_BROKEN = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Sample:
    """One set of inputs.

    Attributes:
        label: its file's name, or "image, batch 3" for a generated one.
        adversarial: a companion (generator.py), which shows faults but not how the outputs vary.
        begun: states that the file lacks, which are zeros.
        first_row: number of the first row, for rows of a file.
    """

    label: str
    feeds: Mapping[str, Array]
    source: Literal["samples", "generated"]
    adversarial: bool = False
    begun: tuple[str, ...] = ()
    first_row: int = 0


@dataclass(frozen=True)
class SampleFile:
    """One set of inputs on disk, not loaded.

    Attributes:
        path: the file, or the first image of a batch.
        label: its name; of a batch of images, the first and the last.
        inputs: the model's inputs.
        read: returns the arrays by name.
        optional: states, which the file may lack and which then start as zeros.
        is_table: whether arrays may have another number type than the input, and columns no second axis.
    """

    path: Path
    label: str
    inputs: tuple[TensorSpec, ...]
    read: Callable[[], Mapping[str, Array]]
    optional: frozenset[str] = frozenset()
    is_table: bool = False

    def load(self) -> Sample:
        """Read the file and check it against the model's inputs; states that it lacks start as zeros.

        Raises:
            InputError: it is unreadable, or an input is missing or has a wrong dtype or shape.
            UsageError: the preprocessing does not fit the model's input.
            MissingDependencyError: it is an image, and Pillow is not installed.
        """
        arrays = self.read()
        if self.is_table:
            arrays = {**arrays, **_cast_table(arrays, self.inputs)}
        begun = tuple(spec for spec in self.inputs if spec.name in self.optional and spec.name not in arrays)
        found = {spec.name: _check(arrays, spec, self.path) for spec in self.inputs if spec not in begun}
        found |= {spec.name: _initial_state(spec, self.inputs, found) for spec in begun}
        feeds = {spec.name: found[spec.name] for spec in self.inputs}
        names, first = tuple(spec.name for spec in begun), getattr(self.read, "start", 0)
        return Sample(self.label, feeds, "samples", begun=names, first_row=first)


def find_samples(
    folder: Path,
    inputs: Sequence[TensorSpec],
    limit: int,
    *,
    settings: Preprocessing | None = None,
    optional: frozenset[str] = frozenset(),
    rows: int = 1,
    features: tuple[str, ...] | None = None,
) -> tuple[SampleFile, ...]:
    """Return the first `limit` sets of inputs in `folder`, in natural order ("img2" before "img10").

    Args:
        folder: a folder, or a file with a set in each row (rows.py).
        settings: of images; a model with a fixed batch of N gets N images per set.
        optional: states, which a file may lack.
        rows: rows per set of a table, or of a file of stacked arrays, where the model's batch is open.
        features: column names of a tabular model, () where its columns have none; None for other models.

    Raises:
        InputError: there is no such folder, no known file in it, or too few images for a batch.
        UsageError: the preprocessing does not fit the model's input.
    """
    entries = sample_entries(folder, {*_READERS, *IMAGES})
    pictures = [entry.path for entry in entries if entry.kind in IMAGES]
    given = [entry for entry in entries if entry.kind not in IMAGES]
    table = _Table(features, rows)
    if folder.is_file() and given:
        return _samples_in_file(given[0], tuple(inputs), optional, table)[:limit]
    found: list[SampleFile] = []
    for entry in given:
        if entry.kind == tables.SUFFIX:
            found += _samples_in_file(entry, tuple(inputs), optional, table)
        else:
            found.append(_sample_file(entry, tuple(inputs), optional, table))
    if pictures:
        required = [spec for spec in inputs if spec.name not in optional]
        batches = _batches(pictures, required, settings or Preprocessing())
        found += [
            SampleFile(paths[0], label, tuple(inputs), read, optional) for paths, label, read in batches
        ]
    if pictures and given:
        places = {entry.path: place for place, entry in enumerate(entries)}
        found.sort(key=lambda file: places[file.path])
    return tuple(found[:limit])


def holds_images(files: Sequence[SampleFile]) -> bool:
    """Return whether any of the files is an image."""
    return any(file.path.suffix.lower() in IMAGES for file in files)


@dataclass(frozen=True)
class _Reading:
    """A reader of a file or a data set; equal for equal files, in other processes too."""

    path: Path
    reader: Callable[[Path, Sequence[TensorSpec]], Mapping[str, Array]]
    inputs: tuple[TensorSpec, ...]

    def __call__(self) -> Mapping[str, Array]:
        return self.reader(self.path, self.inputs)


@dataclass(frozen=True)
class _Table:
    """See find_samples."""

    features: tuple[str, ...] | None
    rows: int


def _sample_file(
    entry: Entry, inputs: tuple[TensorSpec, ...], optional: frozenset[str], table: _Table
) -> SampleFile:
    reader = _READERS.get(entry.kind, _read_data_set)
    if entry.kind == tables.SUFFIX and table.features:
        reader = partial(tables.read_table, features=table.features)
    required = tuple(spec for spec in inputs if spec.name not in optional)
    # A file without names has no states; the numbers of input_N.pb include them.
    reading = _Reading(entry.path, reader, inputs if entry.kind == DATA_SET else required)
    is_table = table.features is not None
    return SampleFile(entry.path, printable(entry.path.name), inputs, reading, optional, is_table)


def _samples_in_file(
    entry: Entry, inputs: tuple[TensorSpec, ...], optional: frozenset[str], table: _Table
) -> tuple[SampleFile, ...]:
    """Return the sets that are stacked in a table, or in the file that the user gave instead of a folder."""
    file = _sample_file(entry, inputs, optional, table)
    required = [spec for spec in inputs if spec.name not in optional]
    rows = split_rows(entry.path, file.read, required, table.rows)
    return tuple(replace(file, label=f"{file.label}[{each.span}]", read=each) for each in rows) or (file,)


Batch = tuple[Sequence[Path], str, Callable[[], Mapping[str, Array]]]


def _batches(paths: Sequence[Path], inputs: Sequence[TensorSpec], settings: Preprocessing) -> list[Batch]:
    """Divide images into the model's batches; the first images fill up the last batch."""
    frame = images.find_frame(inputs, settings, paths[0])
    if len(paths) < frame.batch:
        raise InputError(
            f"{paths[0].parent} has {len(paths)} images",
            why=f"the model takes {frame.spec}, {frame.batch} images in one batch",
            fix="add more, or give an .npz file",
        )
    found: list[Batch] = []
    for start in range(0, len(paths), frame.batch):
        batch = [paths[number % len(paths)] for number in range(start, start + frame.batch)]
        label = batch[0].name if len(batch) == 1 else f"{batch[0].name} ... {batch[-1].name}"
        found.append((batch, printable(label), partial(_read_images, tuple(batch), frame, settings)))
    return found


def _read_images(paths: tuple[Path, ...], frame: images.Frame, settings: Preprocessing) -> dict[str, Array]:
    return {frame.spec.name: images.read_images(paths, frame, settings)}


def _read_npz(path: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            repeated = next((key for key in archive.files if archive.files.count(key) > 1), None)
            if repeated is None:
                return {key: archive[key] for key in archive.files}
    except _BROKEN as error:
        raise _unreadable(path, error) from error
    raise InputError(f"{path} has {repeated!r} twice", fix="save it with one array of that name")


def _read_npy(path: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    if len(inputs) != 1:
        raise InputError(
            f"{path} has one array",
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


def _read_safetensors(path: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    import safetensors

    try:
        tensors = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        return {
            name: np.frombuffer(tensor["data"], _safetensors_dtype(tensor["dtype"])).reshape(tensor["shape"])
            for name, tensor in tensors
        }
    except (OSError, ValueError, TypeError, safetensors.SafetensorError) as error:
        raise _unreadable(path, error) from error


def _safetensors_dtype(name: str) -> Any:
    """Return NumPy's dtype of the format's "F32", "I64", "BF16"."""
    import ml_dtypes

    if name in _OTHER_DTYPES:
        return np.dtype(getattr(ml_dtypes, _OTHER_DTYPES[name]))
    kind, bits = name[0].lower(), int(name[1:]) if name[1:].isdigit() else 0
    return np.dtype(bool) if name == "BOOL" else np.dtype(f"{kind}{bits // 8}")


_OTHER_DTYPES = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def _read_data_set(folder: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Read a data set: input_N.pb is the N-th input of the graph."""
    import google.protobuf.message
    import onnx

    arrays: dict[str, Array] = {}
    for path in sorted(folder.glob("input_*.pb"), key=lambda path: natural(path.name)):
        number = path.stem.removeprefix("input_")
        if not number.isdigit() or int(number) >= len(inputs):
            raise InputError(f"{path} belongs to no input", why=f"the model has {len(inputs)}")
        try:
            tensor = onnx.TensorProto.FromString(path.read_bytes())
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                raise InputError(
                    f"{path} cannot be read",
                    why="its values are in another file",
                    fix="save it with its values",
                )
            arrays[inputs[int(number)].name] = onnx.numpy_helper.to_array(tensor)
        except (OSError, ValueError, TypeError, KeyError, google.protobuf.message.DecodeError) as error:
            raise _unreadable(path, error) from error
    return arrays


# Suffix -> reader: (path, inputs) -> arrays by name.
_READERS: dict[str, Callable[[Path, Sequence[TensorSpec]], Mapping[str, Array]]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".safetensors": _read_safetensors,
    tables.SUFFIX: tables.read_table,
}


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, MemoryError):
        return InputError(f"{path} cannot be read", why="its declared content does not fit into memory")
    why = " ".join(str(error).split())[:200] or type(error).__name__
    if "Object arrays" in why:
        return InputError(
            f"{path} cannot be read",
            why="arrays of objects (pickles) are not loaded",
            fix="save it with arrays of numbers or strings",
        )
    if "pickle" in why:  # NumPy takes any unknown content for a pickle
        return InputError(f"{path} cannot be read", why=f"its content is not that of an {path.suffix} file")
    return InputError(f"{path} cannot be read", why=why)


def _cast_table(arrays: Mapping[str, Array], inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Cast a table's arrays to the inputs' types; a column may be an array [N]."""
    found = {}
    for spec in inputs:
        array = arrays.get(spec.name)
        if array is None:
            continue
        if array.ndim == 1 and len(spec.shape) == 2 and spec.shape[1] == 1:
            array = array[:, None]
        if spec.dtype != "string" and np.can_cast(array.dtype, spec.dtype, "same_kind"):
            array = array.astype(spec.dtype)
        found[spec.name] = array
    return found


def _initial_state(state: TensorSpec, inputs: Sequence[TensorSpec], feeds: Mapping[str, Array]) -> Array:
    """Return zeros for `state`; its open dimensions have the size of their name in `feeds`, or the batch's."""
    known = {
        dim: size
        for spec in inputs
        if spec.name in feeds
        for dim, size in zip(spec.shape, feeds[spec.name].shape, strict=True)
        if isinstance(dim, str)
    }
    axes = OpenSizes(inputs, {spec.name: spec.shape for spec in inputs}).batch_axes
    batch = next((feeds[name].shape[axis] for name, axis in axes.items() if name in feeds), 1)
    sizes = [dim if isinstance(dim, int) else known.get(str(dim), batch) for dim in state.shape]
    return np.zeros(sizes, state.dtype)


def _check(arrays: Mapping[str, Array], spec: TensorSpec, path: Path) -> Array:
    if spec.name not in arrays:
        names = ", ".join(repr(name) for name in arrays) or "nothing"
        raise InputError(f"{path} lacks the input {spec.name!r}", why=f"it has {names}")
    array = arrays[spec.name]
    where = f"{spec.name!r} in {path}"
    dtype = "string" if array.dtype.kind in "OUS" else array.dtype.name
    if dtype != spec.dtype:
        raise InputError(
            f"{where} is {dtype}", why=f"the model takes {spec.dtype}", fix=f"save it as {spec.dtype}"
        )
    if not _fits(array.shape, spec.shape):
        stacked = _fits(array.shape[1:], spec.shape[1:]) and array.ndim == len(spec.shape)
        raise InputError(
            f"{where} has shape {list(array.shape)}",
            why=f"the model takes {spec}",
            fix="save each set of inputs in a file, or give the file itself: its rows are sets"
            if stacked
            else "",
        )
    return array


def _fits(sizes: Sequence[int], dims: Sequence[Dim]) -> bool:
    return len(sizes) == len(dims) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(dims, sizes, strict=True)
    )

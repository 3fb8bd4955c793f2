"""The user's inputs in a folder: arrays, tables, images, audio, and the `test_data_set_*` folders of ONNX models.

Files are listed first and loaded one at a time, because a folder may be larger than the memory. docs/guide/inputs.md
lists the file types.
"""

from __future__ import annotations

import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core import limits
from onnxport.core.archives import DAMAGED_ARCHIVE
from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, UsageError, printable
from onnxport.core.memory import machine_memory
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.samples import audio, images, tables
from onnxport.samples.folders import AUDIO, DATA_SET, IMAGES, Entry, natural, sample_entries
from onnxport.samples.preprocessing import Preprocessing
from onnxport.samples.rows import split_rows
from onnxport.samples.sample import Sample as Sample
from onnxport.samples.sizes import OpenSizes

# Exceptions of NumPy for files that are damaged, of another kind, or pickles. An archive may claim more bytes than the
# machine has; a header is parsed as Python.
_BROKEN = (
    *DAMAGED_ARCHIVE,
    MemoryError,
    TypeError,
    AttributeError,
    SyntaxError,
    RecursionError,
    tokenize.TokenError,
)


@dataclass(frozen=True)
class SampleFile:
    """One set of inputs on disk, not loaded.

    Attributes:
        path: the file, or the first image of a batch.
        label: its name, with the number of the row, frame or sample where it is a part; of a batch of images, the first
            and the last.
        inputs: the model's inputs.
        read: returns the arrays by name.
        optional: states, which the file may lack and which then start as zeros.
        is_table: whether arrays may have another number type than the input, and columns no second axis.
        is_part: whether the file holds other sets too: a row, a frame of an animation, a window of audio.
    """

    path: Path
    label: str
    inputs: tuple[TensorSpec, ...]
    read: Callable[[], Mapping[str, Array]]
    optional: frozenset[str] = frozenset()
    is_table: bool = False
    is_part: bool = False

    def load(self) -> Sample:
        """Read the file and check it against the model's inputs; states that it lacks start as zeros.

        Raises:
            InputError: it is unreadable, or an input is missing or has a wrong dtype or shape.
            UsageError: the preprocessing does not fit the model's input.
            MissingDependencyError: Pillow, which reads images, or SciPy, which resamples audio, is not installed.
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
        folder: a folder, or one file of any kind. Rows of one array file are sets (rows.py); so are frames of an
            animation and, where the model fixes the length, windows of audio, in a folder too.
        settings: of images and audio; a model with a fixed batch of N gets N images or windows per set.
        optional: states, which a file may lack.
        rows: rows per set of a table, or of a file of stacked arrays, where the model's batch is open.
        features: column names of a tabular model, () where its columns have none; None for other models.

    Raises:
        InputError: there is no such folder, no known file in it, too few images for a batch, or an animation or audio
            file is damaged or does not fit the model.
        UsageError: the preprocessing does not fit the model's input.
        MissingDependencyError: Pillow, which reads animations, or SciPy, which resamples audio, is not installed.
    """
    entries = sample_entries(folder, SUFFIXES)
    image_files = [entry.path for entry in entries if entry.kind in IMAGES]
    sounds = [entry.path for entry in entries if entry.kind == AUDIO]
    given = [entry for entry in entries if entry.kind not in IMAGES and entry.kind != AUDIO]
    settings = settings or Preprocessing()
    _check_settings(folder, settings, has_images=bool(image_files), has_audio=bool(sounds))
    table = _Table(features, rows)
    if folder.is_file() and given:
        return _samples_in_file(given[0], tuple(inputs), optional, table)[:limit]
    found: list[SampleFile] = []
    for entry in given:
        if entry.kind == tables.SUFFIX:
            found += _samples_in_file(entry, tuple(inputs), optional, table)
        else:
            found.append(_sample_file(entry, tuple(inputs), optional, table))
    required = [spec for spec in inputs if spec.name not in optional]
    if image_files:
        for batch, label, read in _batches(folder, image_files, required, settings):
            is_part = batch[0].number is not None
            found.append(SampleFile(batch[0].path, label, tuple(inputs), read, optional, is_part=is_part))
    if sounds:
        waveform = audio.find_waveform(required, sounds[0])
        for path in sounds:
            windows = audio.find_windows(path, waveform, settings.rate)
            is_part = len(windows) > 1
            for read in windows:
                label = printable(f"{path.name}[{read.begin}]" if is_part else path.name)
                found.append(SampleFile(path, label, tuple(inputs), read, optional, is_part=is_part))
    if len(found) > 1:
        places = {entry.path: place for place, entry in enumerate(entries)}
        found.sort(key=lambda file: places[file.path])
    return tuple(found[:limit])


def holds_images(files: Sequence[SampleFile]) -> bool:
    """Return whether any of the files is an image, or audio that is resampled: `--preprocess` applies to them."""
    return any(
        _is_image(file) or (isinstance(file.read, audio.Window) and file.read.rate is not None)
        for file in files
    )


def describe_reading(files: Sequence[SampleFile], settings: Preprocessing) -> tuple[str, ...]:
    """Return notes for a report: the preprocessing of images and audio, and what of the audio was not read."""
    notes = [f"preprocessing of images: {settings}"] if any(map(_is_image, files)) else []
    windows = [file.read for file in files if isinstance(file.read, audio.Window)]
    return (*notes, *audio.describe_audio(windows))


def _is_image(file: SampleFile) -> bool:
    return file.path.suffix.lower() in IMAGES


def _check_settings(folder: Path, settings: Preprocessing, *, has_images: bool, has_audio: bool) -> None:
    """Refuse settings of images for a folder of audio, and of audio for one of images (UsageError)."""
    if has_images and not has_audio and settings.rate is not None:
        raise UsageError(f"--preprocess rate is for .wav files, and {folder} holds none", fix="leave it out")
    if has_audio and not has_images and settings.of_images:
        raise UsageError(
            f"--preprocess {settings.of_images[0]} is for images, and {folder} holds none",
            fix="leave it out; audio takes rate",
        )


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
    return tuple(
        replace(file, label=f"{file.label}[{each.span}]", read=each, is_part=True) for each in rows
    ) or (file,)


Batch = tuple[Sequence[images.Picture], str, Callable[[], Mapping[str, Array]]]


def _batches(
    folder: Path, paths: Sequence[Path], inputs: Sequence[TensorSpec], settings: Preprocessing
) -> list[Batch]:
    """Divide images, and frames of animations, into the model's batches; the first ones fill up the last batch."""
    frame = images.find_frame(inputs, settings, paths[0])
    pictures = [picture for path in paths for picture in images.find_pictures(path)]
    if len(pictures) < frame.batch:
        raise InputError(
            f"{folder} has {len(pictures)} images",
            why=f"the model takes {frame.spec}, {frame.batch} images in one batch",
            fix="add more, or give an .npz file",
        )
    found: list[Batch] = []
    for start in range(0, len(pictures), frame.batch):
        batch = [pictures[number % len(pictures)] for number in range(start, start + frame.batch)]
        label = batch[0].name if len(batch) == 1 else f"{batch[0].name} ... {batch[-1].name}"
        found.append((batch, printable(label), partial(_read_images, tuple(batch), frame, settings)))
    return found


def _read_images(
    pictures: tuple[images.Picture, ...], frame: images.Frame, settings: Preprocessing
) -> dict[str, Array]:
    return {frame.spec.name: images.read_images(pictures, frame, settings)}


def _read_npz(path: Path, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            _check_unpacked(path, sum(info.file_size for info in archive.zip.infolist()))
            repeated = next((key for key in archive.files if archive.files.count(key) > 1), None)
            if repeated is None:
                arrays = {key: archive[key] for key in archive.files}
                if other := next(
                    (key for key, found in arrays.items() if not isinstance(found, np.ndarray)), None
                ):
                    raise ValueError(f"its member {other!r} is not an array")
                return arrays
    except _BROKEN as error:
        raise _unreadable(path, error) from error
    raise InputError(f"{path} has {repeated!r} twice", fix="save it with one array of that name")


def _check_unpacked(path: Path, size: int) -> None:
    """Refuse an archive whose arrays would fill the machine; zipfile unpacks no more than its headers say."""
    machine = machine_memory()
    most = limits.limit("unpacked", size if machine is None else machine // 2)
    if size > most:
        raise InputError(
            f"{path} cannot be read",
            why=f"its arrays take {size / 1e9:.1f} GB unpacked; at most {most / 1e9:.1f} GB are read",
            fix="divide it into several files; " + limits.advice("unpacked", size),
        )


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
# Of all files that are samples.
SUFFIXES = frozenset({*_READERS, *IMAGES, AUDIO})


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

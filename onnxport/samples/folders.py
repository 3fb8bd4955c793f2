"""The entries of a user's folder in natural order, with the kind of sample of each.

One scan of the folder finds all of them, without a system call per file: a folder may have 100 000.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import InputError
from onnxport.core.missing_paths import missing_path
from onnxport.core.shell_words import quote

DATA_SET = "test_data_set_"
AUDIO = ".wav"
IMAGES = frozenset(".png .apng .jpg .jpeg .bmp .webp .tif .tiff .gif .ppm .pgm".split())
KINDS = "images, .npz, .npy, .safetensors, .csv or .wav files, or test_data_set_* folders"
_VIDEOS = frozenset(".mp4 .m4v .mov .avi .mkv .webm".split())
_COMPRESSED_AUDIO = frozenset(".mp3 .flac .ogg .opus .m4a .aac .wma .aif .aiff".split())
_NAMED = 3  # unknown files in a message


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder.

    Attributes:
        kind: the suffix of a file, in lower case; DATA_SET for such a folder, "" for anything else.
    """

    path: Path
    kind: str


def sample_entries(folder: Path, suffixes: Collection[str]) -> tuple[Entry, ...]:
    """Return the files of `suffixes` and the data sets, in natural order ("img2" before "img10"), without hidden ones.

    A data set, or one file, counts as a folder of one entry.

    Raises:
        InputError: there is no such folder, or nothing of these kinds in it; for a video or compressed audio, the fix
            is the command that converts it.
    """
    entries = _entries(folder)
    known = tuple(entry for entry in entries if entry.kind in suffixes or entry.kind == DATA_SET)
    if not known:
        for entry in entries:
            _refuse_convertible(entry)
        if folder.is_file():
            raise InputError(f"{folder} cannot be read as inputs", fix=f"give {KINDS}")
        others = ", ".join(entry.path.name for entry in entries[:_NAMED])
        more = f" and {len(entries) - _NAMED} more" if len(entries) > _NAMED else ""
        why = f"{others}{more} cannot be read as inputs" if entries else "it is empty"
        raise InputError(f"{folder} holds no inputs", why=why, fix=f"put {KINDS} into it")
    return known


def holds_suffix(folder: Path, suffixes: Collection[str]) -> bool:
    """Return whether a file of one of `suffixes` is in the folder; raises InputError where there is no such folder."""
    return any(entry.kind in suffixes for entry in _entries(folder))


def _entries(folder: Path) -> list[Entry]:
    if folder.is_file():
        return [Entry(folder, folder.suffix.lower())]
    if not folder.is_dir():
        fix = f"give a folder with {KINDS}, or one such file"
        if folder.exists():
            raise InputError(f"{folder} is not a folder", fix=fix)
        raise missing_path(
            folder, fix=fix, what="" if folder.suffix else f"the folder {folder} does not exist"
        )
    if folder.name.startswith(DATA_SET):
        return [Entry(folder, DATA_SET)]
    try:
        with os.scandir(folder) as scanned:
            named = sorted((natural(each.name), each.name, _kind(each)) for each in scanned)
    except OSError as error:
        raise InputError(f"{folder} cannot be read", why=error.strerror or str(error)) from error
    return [Entry(folder / name, kind) for _, name, kind in named if not name.startswith(".")]


def _refuse_convertible(entry: Entry) -> None:
    """Raise InputError with the command that converts a video or compressed audio; return for other entries."""
    name = quote(entry.path)
    if entry.kind in _VIDEOS:
        raise InputError(
            f"{entry.path} is a video",
            why="videos are not decoded",
            fix=f"extract its frames and give their folder: mkdir frames && ffmpeg -i {name} frames/%05d.png",
        )
    if entry.kind in _COMPRESSED_AUDIO:
        raise InputError(
            f"{entry.path} is no .wav file",
            why="other audio is not decoded",
            fix=f"convert it: ffmpeg -i {name} {quote(entry.path.with_suffix('.wav'))}",
        )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir():
        return DATA_SET if entry.name.startswith(DATA_SET) else ""
    if not entry.is_file():  # reading a pipe would wait
        return ""
    return os.path.splitext(entry.name)[1].lower()


def natural(name: str) -> list[tuple[int, str]]:
    """Return the sort key of a name, with 2 before 10."""
    return [(int(digits or -1), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]

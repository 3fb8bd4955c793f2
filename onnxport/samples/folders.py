"""What lies in a user's folder: its entries in the order a person counts, and which kind of sample each is.

One look at the folder tells all of them, with no question to the file system per file: a folder may hold 100 000.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import InputError

DATA_SET = "test_data_set_"
IMAGES = frozenset(".png .jpg .jpeg .bmp .webp .tif .tiff .gif .ppm .pgm".split())
KINDS = "images, .npz, .npy, .safetensors or .csv files, or test_data_set_* folders"
# Of files that are no inputs, so many are named.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder.

    Attributes:
        kind: the suffix of a file, in lower case; DATA_SET for such a folder, "" for what is neither.
    """

    path: Path
    kind: str


def sample_entries(folder: Path, suffixes: Collection[str]) -> tuple[Entry, ...]:
    """Those of one of the `suffixes` and the data sets, by name ("img2" before "img10"), without hidden files.

    A data set, or one file, stands for a folder that holds it alone.

    Raises:
        InputError: no such folder, or nothing of these kinds in it.
    """
    entries = _entries(folder)
    known = tuple(entry for entry in entries if entry.kind in suffixes or entry.kind == DATA_SET)
    if not known:
        others = ", ".join(entry.path.name for entry in entries[:_NAMED])
        more = f" and {len(entries) - _NAMED} more" if len(entries) > _NAMED else ""
        why = f"{others}{more} cannot be read as inputs" if entries else "it is empty"
        raise InputError(f"{folder} holds no inputs", why=why, fix=f"put {KINDS} into it")
    return known


def has_images(folder: Path) -> bool:
    """Whether there are images among the samples.

    Raises:
        InputError: no such folder.
    """
    return any(entry.kind in IMAGES for entry in _entries(folder))


def _entries(folder: Path) -> list[Entry]:
    if folder.is_file():
        return [Entry(folder, folder.suffix.lower())]
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no folder",
            why="" if folder.exists() else "it does not exist",
            fix=f"give a folder with {KINDS}",
        )
    if folder.name.startswith(DATA_SET):
        return [Entry(folder, DATA_SET)]
    try:
        with os.scandir(folder) as scanned:
            named = sorted((natural(each.name), each.name, _kind(each)) for each in scanned)
    except OSError as error:
        raise InputError(f"{folder} cannot be read", why=error.strerror or str(error)) from error
    return [Entry(folder / name, kind) for _, name, kind in named if not name.startswith(".")]


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir():
        return DATA_SET if entry.name.startswith(DATA_SET) else ""
    if not entry.is_file():  # a pipe, which reading would wait for
        return ""
    return os.path.splitext(entry.name)[1].lower()


def natural(name: str) -> list[tuple[int, str]]:
    """What a name is sorted by to have 2 before 10."""
    return [(int(digits or -1), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]

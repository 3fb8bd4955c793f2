"""Writes .npz files whose arrays have names of a model: any text that an archive holds, `file` included."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError

_LONGEST = 65_535  # bytes of a name in an archive


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name, in their order; the same arrays give the same bytes.

    Raises:
        InputError: an archive cannot hold a name.
    """
    for name in arrays:
        if len(f"{name}.npy".encode()) > _LONGEST or "\0" in name:
            why = "it has a NUL" if "\0" in name else f"archives hold names of at most {_LONGEST:,} bytes"
            raise InputError(
                f"the tensor {name[:60]!r} cannot be an array of {path.name}",
                why=why,
                fix="rename it in the model",
            )
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)

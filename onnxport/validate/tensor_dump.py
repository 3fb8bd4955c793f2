"""The tensors behind a verdict, in a file on request.

The file is an `.npz` of the set of inputs with the verdict's worst element: `input/NAME`, `reference/NAME` and
`candidate/NAME` arrays, and `set`, its label. It holds at most CAP bytes of arrays; the outputs that differ most come
first, and others are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from onnxport.core.npz_writer import write_npz
from onnxport.formats.artifact import Staging, writing
from onnxport.validate.metrics import scale_of
from onnxport.validate.tolerance import float_differences

CAP = 64_000_000
_OPTION = "--report-tensors"

Arrays = Mapping[str, NDArray[Any]]


def check_place(path: Path | None) -> None:
    """Refuse a path that cannot be written, before the work (UsageError, MachineError)."""
    if path is not None:
        with Staging(path, _OPTION):
            pass


class Tensors:
    """One set of inputs and both sides' answers.

    Args:
        answers: the reference's outputs.
        given: the candidate's outputs, by the same names.
    """

    def __init__(self, label: str, feeds: Arrays, answers: Arrays, given: Arrays) -> None:
        self._label, self._feeds = label, feeds
        shares = {name: _share(answers[name], given[name]) for name in answers if name in given}
        names = sorted(shares, key=lambda name: -shares[name])
        self._pairs = {name: (answers[name], given[name]) for name in names}

    def save(self, path: Path) -> str:
        """Write the file and return a note on it.

        Raises:
            UsageError, MachineError: it cannot be written there.
        """
        kept: dict[str, NDArray[Any]] = {"set": np.array(self._label)}
        room, omitted = CAP, []
        for keys, arrays in self._groups():
            room -= (size := sum(array.nbytes for array in arrays))
            if room < 0:
                room += size
                omitted += keys
            else:
                kept |= dict(zip(keys, arrays, strict=True))
        with Staging(path, _OPTION) as staging, writing(path, _OPTION):
            staged = staging.folder / path.name
            write_npz(staged, kept)
            # Not by `commit`, after which Ctrl-C is too late: the artefact is not in its place yet.
            os.replace(staged, path)
        plural = "" if len(omitted) == 1 else "s"
        left = f"; {len(omitted)} array{plural} did not fit into {CAP // 1_000_000} MB" if omitted else ""
        return f"the tensors of {self._label} are in {path}{left}"

    def _groups(self) -> Iterator[tuple[list[str], list[NDArray[Any]]]]:
        """Yield the arrays that stay together: both sides of an output; the inputs follow the worst output."""
        inputs = [_key("input", name) for name in self._feeds], [_plain(a) for a in self._feeds.values()]
        for number, (name, pair) in enumerate(self._pairs.items()):
            yield [_key("reference", name), _key("candidate", name)], [_plain(array) for array in pair]
            if number == 0:
                yield inputs


def _key(side: str, name: str) -> str:
    """Return a member's name, which must not lead out of the folder into which the file is unpacked."""
    return f"{side}/{quote(name, safe='/:').replace('..', '%2E%2E')}"


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return strings as NumPy's own type: objects need pickle to be read."""
    return array.astype(str) if array.dtype.kind == "O" else np.asarray(array)


def _share(reference: NDArray[Any], candidate: NDArray[Any]) -> float:
    """Return the largest difference over the reference's largest magnitude; infinity for no numbers."""
    if reference.shape != candidate.shape or reference.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(reference, candidate) else float("inf")
    left, right = reference.astype(np.float64), candidate.astype(np.float64)
    broken, differences = float_differences(left, right)
    if broken.any():
        return float("inf")
    return float(differences.max(initial=0.0) / (scale_of(left) or 1.0))

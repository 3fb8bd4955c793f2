"""One pass of the samples through the model: every observer sees its tensor of every sample."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.errors import InputError
from onnxport.quantize.calibration.observers import NotFiniteError, Observer
from onnxport.quantize.calibration.session import TappedSession, write_tapped
from onnxport.quantize.setting import Watch
from onnxport.samples.readers import SampleFile

Array = np.ndarray[Any, np.dtype[Any]]
Observed = Mapping[str, tuple[Observer, ...]]


def calibrate(
    path: Path, taps: Mapping[str, Sequence[Observer]], files: Sequence[SampleFile], *, watch: Watch
) -> Observed:
    """What the observers saw of their tensors on all samples.

    Samples are read and run one at a time, so memory does not grow with their number; they may differ in size where the
    model's inputs are open.

    Args:
        path: the settled model; a file is written beside it.
        taps: tensor or graph input to observers that have seen nothing; these are copied.
        files: the samples; at least one.
        watch: told of every sample.

    Raises:
        InputError: a sample that cannot be read, does not fit the model or holds NaN or infinity; or a tensor
            that holds them.
    """
    observed = {name: tuple(map(copy.deepcopy, observers)) for name, observers in taps.items()}
    inputs = {spec.name for spec in files[0].inputs}
    computed = [name for name in taps if name not in inputs]
    with TappedSession(write_tapped(path, computed), computed, path.name) as session:
        for number, file in enumerate(files):
            _observe(session, file, number, observed)
            watch.progress(number + 1, len(files))
    return observed


def _observe(session: TappedSession, file: SampleFile, number: int, observed: Observed) -> None:
    """Shows one sample to all observers."""
    feeds = file.load().feeds
    for name, array in feeds.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError(
                f"input {name!r} of the sample {file.label} holds NaN or infinity",
                fix="mend or remove the sample",
            )
        _show(array, number, observed.get(name, ()), name, file)
    values = session.run(feeds, file.label)
    for position, name in enumerate(session.taps):
        _show(values[position], number, observed[name], name, file)


def _show(values: Array, number: int, observers: Sequence[Observer], name: str, file: SampleFile) -> None:
    for observer in observers:
        try:
            observer.observe(values, number)
        except NotFiniteError as error:
            raise InputError(
                f"tensor {name!r} holds {error} on the sample {file.label}",
                fix="leave the node that makes it in float with --exclude, or remove the sample",
            ) from error

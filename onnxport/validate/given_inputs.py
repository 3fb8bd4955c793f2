"""The user's inputs of a validation, run set by set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.samples.preprocessing import preprocessing
from onnxport.samples.readers import SampleFile, describe_reading, find_samples, holds_images
from onnxport.samples.sample import Sample
from onnxport.samples.split import EVERYTHING, FEWEST, held_back
from onnxport.samples.states import States
from onnxport.samples.tables import ROWS, SUFFIX
from onnxport.validate.input_sets import Try
from onnxport.validate.params import READ, ValidateParams

_OF_ROWS = (".npz", ".npy", ".safetensors")


def feed_from_folder(
    inputs: Iterable[TensorSpec],
    shapes: Mapping[str, tuple[Dim, ...]],
    params: ValidateParams,
    states: States,
    run: Try,
    features: tuple[str, ...] | None = None,
) -> tuple[str, ...]:
    """Run every set of inputs in the user's folder; return notes for the report.

    Args:
        features: the columns of a model of tables, see find_samples; many rows of a file then come at a time.
    """
    assert params.inputs is not None
    specs = [TensorSpec(spec.name, spec.dtype, shapes[spec.name]) for spec in inputs]
    settings = preprocessing(params.preprocess, params.inputs)
    # Calibration divides a table by its rows, so those that it did not see are single ones.
    is_apart = params.part == "held-back"
    rows = ROWS if not is_apart and (features is not None or _is_table(params.inputs)) else 1
    files = find_samples(
        params.inputs,
        specs,
        EVERYTHING,
        settings=settings,
        optional=frozenset(states),
        rows=rows,
        features=features,
    )
    if params.preprocess and not params.preprocess_is_shared and not holds_images(files):
        raise UsageError(
            f"--preprocess applies to images and audio, and {params.inputs} has none",
            fix="leave it out: arrays are fed as they are",
        )
    notes: list[str] = []
    if is_apart:
        spared = held_back(files)
        if not spared:
            same = f"{len(files)} samples" if len(files) > 1 else "sample"
            advice = _advise_rows(params.inputs)
            notes.append(
                f"calibrated and validated on the same {same}: fewer than {FEWEST} are not split{advice}"
            )
        elif (params.samples or 0) > len(spared):
            notes.append(
                f"{len(spared)} of {len(files)} samples are held out of calibration, and no more of them are judged; "
                "give others with --inputs for more"
            )
        files = spared or files
    most = params.samples or READ
    if rows > 1 and len(files) > most:
        notes.append(f"{most} of {len(files)} sets of up to {rows} rows were fed; --samples N feeds more")
    files = files[:most]
    lacking: dict[str, str] = {}

    def load(file: SampleFile) -> Sample:
        sample = file.load()
        lacking.update(dict.fromkeys(sample.begun, sample.label))
        return sample

    for file in files:
        run(partial(load, file), None)
    notes += describe_reading(files, settings)
    notes += [f"{label} has no state {name!r}, so it begins with zeros" for name, label in lacking.items()]
    return tuple(notes)


def _advise_rows(inputs: Path) -> str:
    """Return how the rows of the only file of a folder become samples: in a folder each file is one."""
    found = [each for each in inputs.iterdir() if each.suffix in _OF_ROWS] if inputs.is_dir() else []
    return f"; if its rows are samples, give the file itself: {found[0]}" if len(found) == 1 else ""


def _is_table(path: Path) -> bool:
    return path.suffix.lower() == SUFFIX or any(path.glob(f"*{SUFFIX}"))

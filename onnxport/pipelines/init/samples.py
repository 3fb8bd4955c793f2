"""Checks whether the folder `samples` beside a pipeline has inputs of its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import OnnxportError, printable
from onnxport.pipelines.init.model_summary import ModelSummary

FOLDER = "samples"
_ENOUGH = 100


@dataclass(frozen=True)
class Samples:
    """The samples of a project.

    Attributes:
        count: input sets, up to a hundred; 0 without a folder that fits.
        images: whether some are images.
        why_not: why an existing folder does not fit.
    """

    count: int = 0
    images: bool = False
    why_not: str = ""


def find_samples_of(look: ModelSummary, folder: Path) -> Samples:
    """Return the samples of a model in `folder`/samples."""
    place = folder / FOLDER
    if not place.is_dir():
        return Samples()
    if not look.is_onnx:
        return Samples(why_not="it can be checked only when the model is exported")
    from onnxport.samples.preprocessing import preprocessing
    from onnxport.samples.readers import find_samples, holds_images

    try:
        files = find_samples(
            place,
            look.inputs,
            _ENOUGH,
            settings=preprocessing({}, place),
            optional=frozenset(look.states),
        )
        files[0].load()
    except (OnnxportError, IndexError) as error:
        return Samples(why_not=printable((str(error) or "it is empty").splitlines()[0]))
    return Samples(len(files), holds_images(files))

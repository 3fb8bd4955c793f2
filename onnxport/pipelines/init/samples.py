"""Whether the folder `samples` beside a pipeline holds inputs of its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import OnnxportError, printable
from onnxport.pipelines.init.model_summary import ModelSummary

FOLDER = "samples"
_ENOUGH = 100


@dataclass(frozen=True)
class Samples:
    """What was found there.

    Attributes:
        count: sets of inputs, up to a hundred; 0 where there is no folder, or it does not fit.
        images: whether some are pictures.
        why_not: why a folder that is there does not fit.
    """

    count: int = 0
    images: bool = False
    why_not: str = ""


def find_samples_of(look: ModelSummary, folder: Path) -> Samples:
    """The samples of a model in `folder`/samples."""
    place = folder / FOLDER
    if not place.is_dir():
        return Samples()
    if not look.is_onnx:
        return Samples(why_not="whether it fits is known when the model is exported")
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

"""Options that say what a model is fed, shared by the params models of the rooms above."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from onnxport.core.errors import UsageError
from onnxport.core.named_values import Settings
from onnxport.core.option_types import option
from onnxport.formats.input_paths import InputPath
from onnxport.formats.input_shapes import Shapes


def _check_preprocessing(given: dict[str, str]) -> dict[str, str]:
    """Refuse unknown settings and impossible values (UsageError) before anything runs."""
    if given:
        from onnxport.samples.preprocessing import preprocessing

        preprocessing(given)
    return given


Shape = Annotated[
    Shapes,
    option(
        "Size of an input with open dimensions, as NAME=1,3,224,224. ? keeps a dimension open, 1..8 keeps it open "
        "within bounds, 224|320 allows these sizes only.",
        metavar="NAME=DIMS",
    ),
]
Inputs = Annotated[
    InputPath | None,
    option(
        "Folder with your own inputs: images, .npz, .npy, .safetensors, .csv or .wav files, or ONNX test_data_set_* "
        "folders; or one such file.",
        metavar="DIR",
    ),
]
Preprocess = Annotated[
    Settings,
    AfterValidator(_check_preprocessing),
    option(
        "How images of your own become arrays, as NAME=VALUE: resize, interpolation, crop, layout, color, scale, "
        "mean, std; of audio: rate. A preprocess.yaml in the folder can say the same.",
        metavar="NAME=VALUE",
    ),
]


def check_preprocess(preprocess: Mapping[str, str], inputs: Path | None) -> None:
    """Refuse `--preprocess` without `--inputs` (UsageError)."""
    if preprocess and inputs is None:
        raise UsageError("--preprocess is for images in --inputs", fix="give the folder: --inputs DIR")

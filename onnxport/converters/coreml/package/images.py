"""Image inputs: apps pass pixels of 0 to 255, and the program scales and shifts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxport.converters.app_metadata import ImageInput
from onnxport.converters.coreml.library import Var, mb
from onnxport.converters.coreml.names import INNER
from onnxport.converters.labels import find_port
from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import TensorSpec

# Layout -> number of channels.
_CHANNELS = {"RGB": 3, "BGR": 3, "GRAYSCALE": 1}


def check_images(inputs: Sequence[TensorSpec], images: Mapping[str, ImageInput]) -> None:
    """Refuse image settings that do not fit the inputs (UsageError)."""
    for name, image in images.items():
        spec, channels = find_port(inputs, name, "input"), _CHANNELS[image.layout]
        if len(spec.shape) != 4 or spec.dtype not in ("float32", "float16"):
            raise UsageError(
                f"input {spec} is not an image",
                why="Core ML's are floats of four dimensions: 1, channels, height, width",
            )
        if spec.shape[0] != 1:
            sizes = ",".join(str(dim) if isinstance(dim, int) else "?" for dim in spec.shape[1:])
            raise UsageError(
                f"input {spec} is a batch of images, not one image",
                fix=f"give {quote_option('--shape', f'{name}=1,{sizes}')}",
            )
        if spec.shape[1] != channels:
            raise UsageError(
                f"input {spec} is not an image of {image.layout}",
                why=f"its second dimension would be {channels}, the channels",
            )
        for number in (*image.scale, *image.bias):
            with np.errstate(over="ignore"):
                held = np.float32(number)
            if not np.isfinite(held) or (number != 0 and held == 0):
                raise UsageError(
                    f"the image {name!r} is given by {number}, which float32 cannot represent",
                    fix="scale the model itself",
                )
        for what, numbers in (("scales", image.scale), ("biases", image.bias)):
            if len(numbers) not in (1, channels):
                raise UsageError(
                    f"{len(numbers)} {what} are given for the {channels} channels of input {name!r}",
                    fix="give one number, or one for each channel, as in bias:-0.5:-0.4:-0.4",
                )


def convert_pixels(var: Var, image: ImageInput, key: str, half: bool) -> Var:
    """Scale and shift pixels as the model wants them. In float32: float16 rounds twice and has a small range."""
    if set(image.scale) != {1.0}:
        var = mb.mul(x=var, y=_along_channels(image.scale), name=f"{key}{INNER}scaled")
    if set(image.bias) != {0.0}:
        var = mb.add(x=var, y=_along_channels(image.bias), name=f"{key}{INNER}shifted")
    return mb.cast(x=var, dtype="fp16", name=f"{key}{INNER}half") if half else var


def _along_channels(numbers: Sequence[float]) -> Any:
    array: Any = np.asarray(numbers, np.float32)
    return array.reshape(1, -1, 1, 1) if len(numbers) > 1 else array.reshape(())[()]

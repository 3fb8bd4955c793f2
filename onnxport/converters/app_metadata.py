"""Parses the options for apps that run a model: labels, normalization, images and functions.

Every `--help` imports this module through params.py, so its imports are few.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from onnxport.core.errors import UsageError
from onnxport.core.named_values import parse_pairs
from onnxport.formats.input_paths import InputPath
from onnxport.formats.manifest import MAIN

_SMALLEST = 1.1754943508222875e-38  # the smallest normal float32

# Mean and standard deviation, each one number for all channels or one for each.
Normalization = tuple[tuple[float, ...], tuple[float, ...]]

_LABELS_FORM = "write FILE, or OUTPUT=FILE where several outputs are of its length"
_FORM = "write INPUT=MEAN/STD, each one number or one for each channel, as in image=123.7,116.3,103.5/58.4,57.1,57.4"
_IMAGE_FORM = (
    "write INPUT=scale:1/255,bias:-0.5,layout:RGB; a number for each channel as in bias:-0.5:-0.4:-0.4"
)
_LAYOUTS = ("RGB", "BGR", "GRAYSCALE")
_FUNCTION_FORM = "write NAME=MODEL.onnx"
_IDENTIFIER = re.compile("[A-Za-z][A-Za-z0-9_]*")


class ImageInput(NamedTuple):
    """An input that apps give as a picture: the model gets scale * pixel + bias.

    Attributes:
        layout: "RGB", "BGR" or "GRAYSCALE", the order of the channels.
        scale, bias: one number, or one for each channel.
    """

    layout: str = "RGB"
    scale: tuple[float, ...] = (1.0,)
    bias: tuple[float, ...] = (0.0,)


def parse_images(given: Any) -> dict[str, ImageInput]:
    """Parse `INPUT=scale:1/255,bias:-0.5,layout:RGB` texts, or a mapping from Python."""
    pairs = parse_pairs(given, what="images", form=_IMAGE_FORM)
    return {name: _parse_image(value, name) for name, value in pairs.items()}


def _parse_image(given: object, name: str) -> ImageInput:
    if isinstance(given, ImageInput):
        return given
    settings: dict[str, object] = {}
    if isinstance(given, str):
        for part in filter(None, given.split(",")):
            key, colon, value = part.partition(":")
            if not colon or key.strip() in settings:
                raise _invalid("image", name, part, _IMAGE_FORM)
            settings[key.strip()] = value.strip()
    elif isinstance(given, Mapping):
        settings = dict(given)
    else:
        raise _invalid("image", name, given, _IMAGE_FORM)
    layout = str(settings.pop("layout", "RGB")).upper()
    scale, bias = (
        _parse_channels(settings.pop(key, usual), name) for key, usual in (("scale", 1), ("bias", 0))
    )
    if settings or layout not in _LAYOUTS:
        wrong = next(iter(settings), layout)
        raise UsageError(f"the image {name!r} has no {wrong!r}", fix=_IMAGE_FORM)
    if 0 in scale:
        raise UsageError(f"the image {name!r} has a scale of 0", fix=_IMAGE_FORM)
    return ImageInput(layout, scale, bias)


def _invalid(what: str, name: str, given: object, form: str) -> UsageError:
    return UsageError(f"{given!r} does not describe the {what} {name!r}", fix=form)


def _parse_channels(given: object, name: str) -> tuple[float, ...]:
    values = given.split(":") if isinstance(given, str) else given if isinstance(given, Sequence) else [given]
    return _parse_numbers(values, _parse_fraction, _invalid("image", name, given, _IMAGE_FORM))


def _parse_numbers(values: Any, parse: Callable[[Any], float], error: UsageError) -> tuple[float, ...]:
    """Parse finite numbers, one at least; raise `error` if these are none."""
    try:
        numbers = tuple(map(parse, values))
    except (TypeError, ValueError, ZeroDivisionError):
        raise error from None
    if not numbers or not all(map(math.isfinite, numbers)):
        raise error
    return numbers


def _parse_fraction(value: Any) -> float:
    """Parse a number, or two with a slash between."""
    if isinstance(value, str) and "/" in value:
        above, _, below = value.partition("/")
        return float(above) / float(below)
    return float(value)


def parse_labels(given: Any) -> dict[str, Path]:
    """Parse `OUTPUT=FILE` texts, or a FILE alone with an empty output name."""
    if isinstance(given, str | os.PathLike):
        given = (os.fspath(given),)
    if isinstance(given, Mapping):
        return {str(name): Path(file) for name, file in given.items()}
    if not isinstance(given, Sequence) or not all(isinstance(text, str | os.PathLike) for text in given):
        raise UsageError(f"{given!r} is not a label file", fix=_LABELS_FORM)
    found: dict[str, Path] = {}
    for text in map(os.fspath, given):
        name, _, file = text.rpartition("=")
        if name in found:
            raise UsageError(
                f"labels of {name!r} are given twice" if name else "two label files have no output"
            )
        found[name] = Path(file)
    return found


def parse_functions(given: Any) -> dict[str, Path]:
    """Parse `NAME=MODEL.onnx` texts, or a mapping from Python."""
    pairs = parse_pairs(given, what="functions", form=_FUNCTION_FORM, at_first=True)
    functions: dict[str, Path] = {}
    for name, file in pairs.items():
        if name == MAIN:
            raise UsageError(f"the first model is the function {name!r}", fix="give this one another name")
        if not (isinstance(name, str) and _IDENTIFIER.fullmatch(name)):
            raise UsageError(
                f"{name!r} cannot name a function",
                fix="use letters, digits and _, a letter first, as in decode",
            )
        if not isinstance(file, str | os.PathLike) or not os.fspath(file):
            raise _invalid("function", name, file, _FUNCTION_FORM)
        functions[name] = Path(file)
    return functions


def parse_normalizations(given: Any) -> dict[str, Normalization]:
    """Parse `INPUT=MEAN/STD` texts, or a mapping of pairs from Python."""
    pairs = parse_pairs(given, what="normalizations", form=_FORM)
    return {name: _parse_normalization(value, name) for name, value in pairs.items()}


def _parse_normalization(given: object, name: str) -> Normalization:
    parts = given.split("/") if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise _invalid("normalization of", name, given, _FORM)
    mean, std = (
        _parse_numbers(
            part.split(",") if isinstance(part, str) else [part] if isinstance(part, int | float) else part,
            float,
            _invalid("normalization of", name, part, _FORM),
        )
        for part in parts
    )
    # The metadata hold float32.
    if any(abs(number) < _SMALLEST for number in std):
        raise UsageError(f"the normalization of {name!r} divides by 0", fix="give another standard deviation")
    return mean, std


def _file_names(labels: Mapping[str, Path]) -> dict[str, str]:
    # A manifest has no paths, so that the same input gives the same bytes anywhere.
    return {output: file.name for output, file in labels.items()}


# Field types of the params models.
Labels = Annotated[dict[str, Path], BeforeValidator(parse_labels), PlainSerializer(_file_names)]
Functions = Annotated[dict[str, InputPath], BeforeValidator(parse_functions)]
Normalizations = Annotated[dict[str, Normalization], BeforeValidator(parse_normalizations)]
Images = Annotated[dict[str, ImageInput], BeforeValidator(parse_images)]

"""What a user may say of a model's inputs and outputs for the apps that will run it: labels and normalization.

Light on purpose, since `params.py` imports it: what the options look like, not what is made of them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, PlainSerializer

from onnxport.core.errors import UsageError
from onnxport.core.named_values import parse_pairs
from onnxport.formats.manifest import MAIN

_SMALLEST = 1.1754943508222875e-38  # the least float32 with all its digits

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
    """An input that apps give as a picture: the model takes scale * pixel + bias.

    Attributes:
        layout: "RGB", "BGR" or "GRAYSCALE", the order of the channels.
        scale, bias: one number, or one for each channel.
    """

    layout: str = "RGB"
    scale: tuple[float, ...] = (1.0,)
    bias: tuple[float, ...] = (0.0,)


def parse_images(given: object) -> dict[str, ImageInput]:
    """Reads `INPUT=scale:1/255,bias:-0.5,layout:RGB` texts, or takes a mapping as Python callers write it."""
    pairs = parse_pairs(given, what="images", form=_IMAGE_FORM)  # type: ignore[arg-type]
    return {name: _image(value, name) for name, value in pairs.items()}


def _image(given: object, name: str) -> ImageInput:
    if isinstance(given, ImageInput):
        return given
    settings: dict[str, object] = {}
    if isinstance(given, str):
        for part in filter(None, given.split(",")):
            key, colon, value = part.partition(":")
            if not colon or key.strip() in settings:
                raise UsageError(f"the image {name!r} is not given by {part!r}", fix=_IMAGE_FORM)
            settings[key.strip()] = value.strip()
    elif isinstance(given, Mapping):
        settings = dict(given)
    else:
        raise UsageError(f"the image {name!r} is not given by {given!r}", fix=_IMAGE_FORM)
    layout = str(settings.pop("layout", "RGB")).upper()
    scale, bias = (_channels(settings.pop(key, usual), name) for key, usual in (("scale", 1), ("bias", 0)))
    if settings or layout not in _LAYOUTS:
        wrong = next(iter(settings), layout)
        raise UsageError(f"the image {name!r} has no {wrong!r}", fix=_IMAGE_FORM)
    if 0 in scale:
        raise UsageError(f"the image {name!r} has a scale of 0", fix=_IMAGE_FORM)
    return ImageInput(layout, scale, bias)


def _channels(given: object, name: str) -> tuple[float, ...]:
    values = given.split(":") if isinstance(given, str) else given if isinstance(given, Sequence) else [given]
    try:
        numbers = tuple(_fraction(value) for value in values)
    except (TypeError, ValueError, ZeroDivisionError):
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)):
        raise UsageError(f"the image {name!r} is not given by {given!r}", fix=_IMAGE_FORM)
    return numbers


def _fraction(value: object) -> float:
    """A number, or two with a slash between."""
    if isinstance(value, str) and "/" in value:
        above, _, below = value.partition("/")
        return float(above) / float(below)
    return float(value)  # type: ignore[arg-type]


def parse_labels(given: object) -> dict[str, Path]:
    """Reads `OUTPUT=FILE` texts or a FILE alone, whose output's name is then empty."""
    if isinstance(given, str | os.PathLike):
        given = (os.fspath(given),)
    if isinstance(given, Mapping):
        return {str(name): Path(file) for name, file in given.items()}
    if not isinstance(given, Sequence) or not all(isinstance(text, str | os.PathLike) for text in given):
        raise UsageError(f"labels are not given by {given!r}", fix=_LABELS_FORM)
    found: dict[str, Path] = {}
    for text in map(os.fspath, given):
        name, _, file = text.rpartition("=")
        if name in found:
            raise UsageError(
                f"labels of {name!r} are given twice" if name else "two label files have no output"
            )
        found[name] = Path(file)
    return found


def parse_functions(given: object) -> dict[str, Path]:
    """Reads `NAME=MODEL.onnx` texts, or takes a mapping of names to paths as Python callers write it."""
    pairs = parse_pairs(given, what="functions", form=_FUNCTION_FORM, at_first=True)  # type: ignore[arg-type]
    functions: dict[str, Path] = {}
    for name, file in pairs.items():
        if name == MAIN:
            raise UsageError(
                f"the function {name!r} is that of the model given first", fix="give this one another name"
            )
        if not (isinstance(name, str) and _IDENTIFIER.fullmatch(name)):
            raise UsageError(
                f"{name!r} cannot name a function", fix="letters, digits and _, a letter first, as in decode"
            )
        if not isinstance(file, str | os.PathLike) or not os.fspath(file):
            raise UsageError(f"the function {name!r} is not given by {file!r}", fix=_FUNCTION_FORM)
        functions[name] = Path(file)
    return functions


def parse_normalizations(given: object) -> dict[str, Normalization]:
    """Reads `INPUT=MEAN/STD` texts, or takes a mapping of pairs as Python callers write it."""
    pairs = parse_pairs(given, what="normalizations", form=_FORM)  # type: ignore[arg-type]
    return {name: _normalization(value, name) for name, value in pairs.items()}


def _normalization(given: object, name: str) -> Normalization:
    parts = given.split("/") if isinstance(given, str) else given
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise UsageError(f"the normalization of {name!r} is not given by {given!r}", fix=_FORM)
    mean, std = (_numbers(part, name) for part in parts)
    # The metadata hold float32.
    if any(abs(number) < _SMALLEST for number in std):
        raise UsageError(
            f"the normalization of {name!r} divides by 0", fix="give a standard deviation that is not 0"
        )
    return mean, std


def _numbers(given: object, name: str) -> tuple[float, ...]:
    values = (
        given.split(",") if isinstance(given, str) else [given] if isinstance(given, int | float) else given
    )
    try:
        numbers = tuple(float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)):
        raise UsageError(f"the normalization of {name!r} is not given by {given!r}", fix=_FORM)
    return numbers


def _file_names(labels: Mapping[str, Path]) -> dict[str, str]:
    # An artefact's manifest holds no paths: the same input gives the same bytes anywhere.
    return {output: file.name for output, file in labels.items()}


# How a params model takes them.
Labels = Annotated[dict[str, Path], BeforeValidator(parse_labels), PlainSerializer(_file_names)]
Functions = Annotated[dict[str, Path], BeforeValidator(parse_functions)]
Normalizations = Annotated[dict[str, Normalization], BeforeValidator(parse_normalizations)]
Images = Annotated[dict[str, ImageInput], BeforeValidator(parse_images)]

"""The settings that turn images and audio into arrays, from options or a `preprocess.yaml`.

Images follow the order of torchvision's transforms: resize, crop, (byte * scale - mean) / std. docs/guide/inputs.md
lists the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from onnxport.core.errors import InputError, OnnxportError, UsageError
from onnxport.core.yaml_settings import read_settings
from onnxport.samples.audio import LARGEST_RATE

SIDECARS = ("preprocess.yaml", "preprocess.yml")

_SIZE = re.compile(r"(\d+)(?:x(\d+))?")
_LARGEST = 16384


def _sizes(given: object) -> object:
    """Parse 256, "256", "224x320" or [224, 320] as one size or height and width."""
    if isinstance(given, str):
        matched = _SIZE.fullmatch(given.strip())
        if matched is None:
            raise ValueError("write N for the short side, or HEIGHTxWIDTH")
        given = [int(size) for size in matched.groups() if size]
    sizes = given if isinstance(given, list | tuple) else [given]
    if len(sizes) not in (1, 2) or not all(type(size) is int and 0 < size <= _LARGEST for size in sizes):
        raise ValueError(f"write N for the short side, or HEIGHTxWIDTH, each 1 to {_LARGEST}")
    return tuple(sizes)


def _number(given: object) -> float:
    """Parse 0.5, "0.5" or "1/255"."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError(f"{given!r} is not a number")
    try:
        number = float(Fraction(given.strip()) if isinstance(given, str) else given)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError(f"{given!r} is not a number") from None
    if not np.isfinite(number):
        raise ValueError(f"{given!r} is not finite")
    return number


def _numbers(given: object) -> object:
    """Parse one number for all channels, or one per channel: "0.485,0.456,0.406" or a list."""
    if isinstance(given, str):
        given = given.split(",")
    return tuple(_number(number) for number in (given if isinstance(given, list | tuple) else [given]))


def _rate(given: object) -> int:
    """Parse 16000 or "16000"."""
    text = str(given).strip()
    if isinstance(given, bool) or not re.fullmatch(r"[0-9]{1,6}", text) or not 0 < int(text) <= LARGEST_RATE:
        raise ValueError(f"write a rate in Hz, 1 to {LARGEST_RATE}")
    return int(text)


Sizes = Annotated[tuple[int, ...], BeforeValidator(_sizes)]
PerChannel = Annotated[tuple[float, ...], BeforeValidator(_numbers)]


class Preprocessing(BaseModel):
    """The settings; left alone, an image is fed as its bytes 0..255 in the size that it has.

    Attributes:
        resize: (N,) has the shorter side become N, the other one int(N * long / short), as torchvision has it;
            (H, W) is exact and heeds no proportion.
        interpolation: the filter, antialiased when shrinking (Pillow's, on bytes).
        crop: (N,) or (H, W) from the middle.
        layout: where the channels lie; None takes it from the model's input.
        color: None is gray for one channel, rgb for three, rgba for four.
        scale: each byte is multiplied by it first.
        mean, std: subtracted and divided by afterwards, so in scaled units; for all channels or one each.
        rate: of audio in Hz, which is resampled; None for the file's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    resize: Sizes | None = None
    interpolation: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] = "bilinear"
    crop: Sizes | None = None
    layout: Literal["nchw", "nhwc"] | None = None
    color: Literal["rgb", "bgr", "gray", "rgba"] | None = None
    scale: Annotated[float, BeforeValidator(_number)] = 1.0
    mean: PerChannel = (0.0,)
    std: PerChannel = (1.0,)
    rate: Annotated[int | None, BeforeValidator(_rate)] = None

    @model_validator(mode="after")
    def _can_divide(self) -> Self:
        if not all(self.std):
            raise ValueError("std has a 0")
        return self

    def __str__(self) -> str:
        """Return the settings other than defaults, for the report."""
        given = [
            f"{name}={_text(getattr(self, name))}" for name in type(self).model_fields if self._is_set(name)
        ]
        return ", ".join(given) or "none, bytes 0..255 in the size that they have"

    @property
    def of_images(self) -> tuple[str, ...]:
        """The names of the settings that are for images and are no defaults."""
        return tuple(name for name in type(self).model_fields if name != "rate" and self._is_set(name))

    def _is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @property
    def touches_values(self) -> bool:
        """Whether pixels are scaled, which needs a float input."""
        return self.scale != 1.0 or set(self.std) != {1.0}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return (",".join if isinstance(value[0], float) else "x".join)(f"{number:.6g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def preprocessing(given: Mapping[str, str], folder: Path | None = None) -> Preprocessing:
    """Return the settings of the options, and of the sidecar in `folder` for the rest.

    Raises:
        UsageError: an option has an unknown name or an invalid value.
        InputError: the same in the sidecar, or it is no YAML.
    """
    options = _validate(dict(given), UsageError, "--preprocess")
    sidecar = _sidecar(folder) if folder is not None else None
    if sidecar is None:
        return options
    defaults = _validate(_load(sidecar), InputError, str(sidecar))
    return defaults.model_copy(update={name: getattr(options, name) for name in options.model_fields_set})


def _sidecar(folder: Path) -> Path | None:
    try:
        return next((path for name in SIDECARS if (path := folder / name).is_file()), None)
    except OSError as error:  # no permission to look into the folder
        raise InputError(f"{folder} cannot be read", why=error.strerror or str(error)) from error


def _load(path: Path) -> dict[str, object]:
    try:
        content = read_settings(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read", why=" ".join(str(error).split())[:200]) from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(
            f"{path} is not a list of settings", fix="write lines such as mean: [0.485, 0.456, 0.406]"
        )
    return content


def _validate(given: dict[str, Any], error: type[OnnxportError], where: str) -> Preprocessing:
    known = Preprocessing.model_fields
    unknown = [name for name in given if name not in known]
    if unknown:
        raise error(f"{where} has no setting {unknown[0]!r}", fix=f"the settings are {', '.join(known)}")
    try:
        return Preprocessing.model_validate(given)
    except ValidationError as refusal:
        first = refusal.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "std"
        why = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
        raise error(f"{where} has {name}={given.get(name)}", why=why) from None

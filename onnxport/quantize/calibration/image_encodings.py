"""Encodings of images: bytes, and the results of common preprocessing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's photos, as torchvision has them
_SLACK = 1e-3  # of a form's span: rounding


@dataclass(frozen=True)
class ImageEncoding:
    """(byte * scale - mean) / std, as in preprocessing."""

    name: str  # as the user is told
    scale: float = 1.0
    # mean, std: one number, or one per channel of RGB.
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest value that a byte becomes."""
        channels = list(zip(self.mean, self.std, strict=True))
        return min(-m / s for m, s in channels), max((255 * self.scale - m) / s for m, s in channels)

    def holds(self, low: float, high: float) -> bool:
        least, most = self.span
        slack = _SLACK * (most - least)
        return least - slack <= low and high <= most + slack

    def bytes_of(self, values: Array, axis: int) -> Array:
        """Return float32 bytes of values in this encoding; `axis` has the channels."""
        mean, std = _along(self.mean, axis, values), _along(self.std, axis, values)
        return (values * std + mean) / np.float32(self.scale)

    def of_bytes(self, pixels: Array, axis: int) -> Array:
        """Encode float32 bytes."""
        mean, std = _along(self.mean, axis, pixels), _along(self.std, axis, pixels)
        return (pixels * np.float32(self.scale) - mean) / std

    @property
    def options(self) -> str:
        """Return the command's options that produce this encoding."""
        settings = []
        if self.scale != 1:
            settings.append("scale=1/255")
        for name, values, neutral in (("mean", self.mean, 0.0), ("std", self.std, 1.0)):
            if set(values) != {neutral}:
                settings.append(f"{name}={','.join(f'{value:g}' for value in values)}")
        return " ".join(f"--preprocess {setting}" for setting in settings)


BYTES = ImageEncoding("bytes 0..255")
_FORMS = (
    BYTES,
    ImageEncoding("numbers 0..1", 1 / 255),
    ImageEncoding("numbers -1..1", 1 / 255, (0.5,), (0.5,)),
    ImageEncoding("ImageNet's mean and deviation", 1 / 255, _MEAN, _STD),
    ImageEncoding("bytes less ImageNet's mean", 1.0, tuple(255 * mean for mean in _MEAN), (1.0,) * 3),
)


def channel_axis(spec: TensorSpec) -> int | None:
    """Return the axis with 1 or 3 channels of a float image input; None for other inputs."""
    if len(spec.shape) != 4 or not spec.dtype.startswith("float"):
        return None
    return next((axis for axis in (1, 3) if spec.shape[axis] in (1, 3)), None)


def possible_encodings(channels: int) -> Iterator[ImageEncoding]:
    """Return the encodings possible for images of this many channels."""
    return (form for form in _FORMS if len(form.mean) in (1, channels))


def narrowest_encoding(low: float, high: float, channels: int) -> ImageEncoding | None:
    """Return the narrowest encoding that contains values of this range."""
    holding = [form for form in possible_encodings(channels) if form.holds(low, high)]
    return min(holding, key=lambda form: form.span[1] - form.span[0], default=None)


def _along(values: tuple[float, ...], axis: int, array: Array) -> Array:
    shape = [1] * array.ndim
    shape[axis] = len(values)
    return np.asarray(values, np.float32).reshape(shape)

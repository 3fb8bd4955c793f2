"""Samples to calibrate int8 on and to check it with: photos for pictures, tones for waveforms, else random values.

A detector is silent on noise: its answers are then float32's own rounding, of which no decibel can be told. So pictures
are photos (fixtures/photos.py: no scene is in both parts), encoded as the network's first layer expects them, and sound
is a voice's harmonics with some noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.matching import Array
from benchmarks.reality.check import declared_sizes, filled, random_inputs
from fixtures import photos, reality
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.model import Model
from onnxport.quantize.calibration.image_encodings import ImageEncoding, possible_encodings
from onnxport.quantize.calibration.input_statistics import ExpectedStatistics, Moments

CALIBRATION = 32
CHECK = 2
_CHANNELS = (3, 4)  # of colours, and with an opacity, which is 1; one channel may as well be a spectrogram
_SMALLEST = 16  # pixels a side; less is no picture
_SOUND = 4000  # numbers of a vector that is a waveform
_RATE = 16_000  # of waveforms, Hz
_LOOKED_AT = 8
_USUAL = 1  # of possible_encodings: numbers 0..1, where the network does not tell
# Of the spread of training; of right encodings it is between.
_RIGHT_SPREAD = (1 / 20, 20.0)


def write_samples(model: Path, entry: reality.Entry, seed: int, calibration: Path, check: Path) -> None:
    """Write samples as .npz files into two folders.

    Raises:
        ValueError: the model takes texts, or accepts no random values.
    """
    sizes = filled(declared_sizes(model), entry.shapes)
    picture = _picture_input(model, sizes)
    encoding = None if picture is None else _encoding(model, picture, sizes[picture.name])
    parts: tuple[tuple[Path, photos.Part, range], ...] = (
        (calibration, "calibration", range(CALIBRATION)),
        (check, "test", range(CALIBRATION, CALIBRATION + CHECK)),
    )
    for folder, part, numbers in parts:
        folder.mkdir()
        for number in numbers:
            feeds = random_inputs(model, sizes, seed + number, number)
            for name, value in entry.values.items():
                feeds[name] = np.full_like(feeds[name], value)
            for name, array in feeds.items():
                if array.dtype == np.float32 and array.ndim <= 2 and array.size >= _SOUND:
                    feeds[name] = _tone(array.shape, seed + number)
            if picture is not None and encoding is not None:
                feeds[picture.name] = _photo(part, number, sizes[picture.name], encoding)
            np.savez(folder / f"{number:02}.npz", **feeds)


def _tone(shape: tuple[int, ...], seed: int) -> Array:
    """Return a tone of 100 to 400 Hz that glides, with falling harmonics, louder and quieter, and noise 30 dB below."""
    random = np.random.default_rng(seed)
    seconds = np.arange(shape[-1]) / _RATE
    pitch = random.uniform(100, 400) * (1 + 0.1 * np.sin(2 * np.pi * random.uniform(0.5, 3) * seconds))
    phase = 2 * np.pi * np.cumsum(pitch) / _RATE
    voice = sum(np.sin(order * phase) / order for order in range(1, 8))
    loudness = 0.3 * (0.6 + 0.4 * np.sin(2 * np.pi * random.uniform(0.5, 4) * seconds))
    sound = loudness * voice + 0.01 * random.standard_normal(shape)
    return np.asarray(np.broadcast_to(sound, shape), np.float32)


def _picture_input(model: Path, sizes: Mapping[str, Sequence[int]]) -> TensorSpec | None:
    """Return the only float32 input of four dimensions, with the channels of a picture and pixels enough."""
    found = []
    for spec in Model.load(model).inputs:
        size = sizes[spec.name]
        if spec.dtype == "float32" and len(size) == 4 and (axis := _channel_axis(size)) is not None:
            sides = [side for index, side in enumerate(size) if index not in (0, axis)]
            found += [spec] * (min(sides) >= _SMALLEST)
    return found[0] if len(found) == 1 else None


def _channel_axis(size: Sequence[int]) -> int | None:
    return next((axis for axis in (1, 3) if size[axis] in _CHANNELS), None)


def _encoding(model: Path, spec: TensorSpec, size: Sequence[int]) -> ImageEncoding:
    """Return the encoding whose photos are most like the training data that the first layer implies."""
    axis = _channel_axis(size)
    assert axis is not None
    forms = list(possible_encodings(min(size[axis], 3)))
    expected = ExpectedStatistics.of(Model.load(model))
    if expected is None or expected.input != spec.name:
        return forms[_USUAL]
    distances = []
    for form in forms:
        moments = Moments()
        for number in range(_LOOKED_AT):
            expected.measure(moments, _photo("calibration", number, size, form))
        spread = expected.spread(moments) if moments.count else None
        if spread is None:
            return forms[_USUAL]
        divergence = expected.divergence(moments)
        distances.append(abs(np.log(spread)) if divergence is None else divergence)
        if form is forms[_USUAL] and divergence is None and _RIGHT_SPREAD[0] < spread < _RIGHT_SPREAD[1]:
            return form  # a bias tells the order of magnitude alone
    return forms[int(np.argmin(distances))]


def _photo(part: photos.Part, number: int, size: Sequence[int], encoding: ImageEncoding) -> Array:
    """Return a photo, repeated along the batch, encoded, with its channels where the input has them."""
    axis = _channel_axis(size)
    assert axis is not None
    height, width = (side for index, side in enumerate(size) if index not in (0, axis))
    image = photos.photo(part, number, (height, width)).convert("RGB")
    encoded = encoding.of_bytes(np.asarray(image, np.float32).reshape(height, width, -1), axis=2)
    if size[axis] > encoded.shape[2]:
        encoded = np.concatenate([encoded, np.ones((height, width, 1), np.float32)], axis=2)
    placed = encoded.transpose(2, 0, 1) if axis == 1 else encoded
    return np.ascontiguousarray(np.broadcast_to(placed, tuple(size)), np.float32)

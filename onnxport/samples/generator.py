"""Seeded inputs within the domains that a graph implies.

A pure function of names, shapes, domains, kind and seed: the same arrays on any machine. Each input has its own random
stream, so an added input does not change the others. Only operations that IEEE 754 rounds identically everywhere are
used (no sine, no exponential).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import TensorSpec
from onnxport.samples import columns
from onnxport.samples.arrangements import arrange
from onnxport.samples.domain import Domain

# Distributions of floats. No single one suits every network: a detector saturates on noise, a network that was trained
# on normalised values saturates on 0..255. The last four are adversarial companions: rare inputs that reveal faults.
FloatKind = Literal[
    "image", "normal", "uniform", "soft", "few", "scaled", "blocks", "zeros", "sparse", "constant", "large"
]
KINDS: tuple[FloatKind, ...] = ("image", "normal", "uniform")
# For outputs that KINDS leave constant: images normalised to -1..1, as detectors are trained on, few values, other
# magnitudes.
FURTHER_KINDS: tuple[FloatKind, ...] = ("soft", "scaled", "few", "scaled", *KINDS, "scaled", "few", "scaled")
# Sharp structure, for a search (validate.input_search).
SEARCHED: FloatKind = "blocks"
COMPANIONS: tuple[FloatKind, ...] = ("zeros", "sparse", "constant", "large")

_CHANNELS = (1, 3, 4)
_TEXTS = ("a", "onnx", "text", "two words", "a,b", "12")
_COARSEST = 4  # grid points per axis of the first octave
_SPIKE = 1e3  # magnitude of the few nonzero values of a sparse set: beyond every known clamp, within float16
_SPIKES = 0.05  # share of these values
_LARGE = 1e4  # standard deviation of the large set
_SMALLEST = 2.0**-10  # the "zero" of positive values
# Standard deviations of the "scaled" sets, in turn.
_SCALES = (4.0, 64.0, 0.0625, 16.0, 0.25)
_IDS = 8  # distinct values of a set with repetitions


def generate(
    inputs: Mapping[str, tuple[TensorSpec, tuple[int, ...]]],
    domains: Mapping[str, Domain],
    *,
    kind: FloatKind,
    seed: int,
    index: int,
) -> dict[str, Array]:
    """Generate one set of inputs.

    Args:
        inputs: name -> spec and concrete shape.
        domains: name -> domain.
        kind: distribution of floats in this set.
        seed: the user's seed.
        index: number of the set; each has other values.
    """
    longest = max((size for _, shape in inputs.values() for size in (1, *shape[1:])), default=1)
    feeds = {}
    for name, (spec, shape) in inputs.items():
        random = np.random.Generator(np.random.PCG64([seed, index, zlib.crc32(name.encode())]))
        if 0 in shape:
            feeds[name] = np.zeros(shape, _numpy_dtype(spec.dtype))
            continue
        domain = domains[name]
        if domain.setting is not None:
            feeds[name] = domain.setting
            continue
        drawn = _draw(random, spec.dtype, shape, domain, kind, index, longest)
        if domain.structure or domain.nonzero or domain.limits:
            drawn = arrange(random, np.asarray(drawn), domain)
        # NumPy draws a scalar, which is no array, for the shape ().
        feeds[name] = np.asarray(drawn, _numpy_dtype(spec.dtype))
    return feeds


def _numpy_dtype(dtype: str) -> str:
    return "object" if dtype == "string" else dtype


def _draw(
    random: np.random.Generator,
    dtype: str,
    shape: tuple[int, ...],
    domain: Domain,
    kind: FloatKind,
    index: int,
    longest: int,
) -> Array:
    if domain.kind == "table":
        return columns.draw(random, shape, domain.columns, kind, domain.precision)
    if dtype == "string":
        return random.choice(np.array(_TEXTS, dtype=object), shape)
    if domain.kind == "state":
        # A stream starts with a state of zeros; later states are results of tanh.
        return (np.zeros(shape) if index == 0 or kind == "zeros" else random.uniform(-1, 1, shape)).astype(
            dtype
        )
    if domain.kind == "choice":
        return np.full(shape, domain.values[index % len(domain.values)], dtype)
    if domain.kind == "position":
        return np.broadcast_to(np.minimum(np.arange(shape[-1] if shape else 1), domain.high), shape).astype(
            dtype
        )
    if domain.kind == "one-hot":
        return np.eye(shape[-1] if shape else 1)[
            random.integers(0, shape[-1] if shape else 1, shape[:-1])
        ].astype(dtype)
    if kind in COMPANIONS:
        return _companion(random, shape, domain, kind, longest).astype(dtype)
    if domain.kind == "real":
        return _real(random, shape, domain, kind, index).astype(dtype)
    if domain.kind == "boolean":
        return random.random(shape) < (0.5, 0.1, 0.9)[index % 3]
    if domain.kind == "mask":
        hidden, kept = domain.values or (0, 1)
        return np.where(_mask(random, shape, index), kept, hidden).astype(dtype)
    if domain.kind == "length":
        most = _most_steps(domain, longest)
        return random.integers(max(1, most // 2), most + 1, shape).astype(dtype)
    if image_axes(shape) is not None and dtype == "uint8":
        return _image(random, shape).astype(dtype)
    return _integers(random, shape, domain, index).astype(dtype)


def _real(
    random: np.random.Generator, shape: tuple[int, ...], domain: Domain, kind: FloatKind, index: int
) -> Array:
    if domain.center:
        return np.asarray(domain.center) + np.asarray(domain.spread) * random.standard_normal(shape)
    if domain.positive:
        return random.uniform(0.1, 2.0, shape)
    if kind == "normal":
        drawn = random.standard_normal(shape)
        return drawn if domain.bounds is None else _between(domain.bounds, 0.5 + drawn / 6)
    if kind == "few":
        return _few(random, shape, domain)
    if kind == SEARCHED:
        return _blocks(random, shape, domain)
    if kind == "scaled" and domain.bounds is None:
        return _SCALES[index % len(_SCALES)] * random.standard_normal(shape)
    if kind == "uniform":
        drawn = random.uniform(0.0, 1.0, shape)
        return drawn if domain.bounds is None else _between(domain.bounds, drawn)
    if image_axes(shape) is not None:
        image = _image(random, shape)
        if domain.bounds is not None:
            return _between(domain.bounds, image / 255.0)
        return image / 127.5 - 1.0 if kind == "soft" else image
    signal = _signal(random, shape)
    return signal if domain.bounds is None else _between(domain.bounds, (signal + 1) / 2)


def _few(random: np.random.Generator, shape: tuple[int, ...], domain: Domain) -> Array:
    """Draw whole numbers of a few values, where the domain has them, and rows that repeat."""
    low, high = domain.bounds or (-2.0, 3.0)
    drawn = np.round(low + (high - low) * random.random(shape), 0 if high - low > 2 else 1)
    if shape:
        axis = int(random.integers(len(shape)))
        rows = np.moveaxis(drawn, axis, 0)
        rows[random.random(len(rows)) < 0.5] = rows[0].copy()
    return np.clip(drawn, low, high)


def _blocks(random: np.random.Generator, shape: tuple[int, ...], domain: Domain) -> Array:
    """Draw two values, about those of black and white normalized images, in blocks of one size, often over channels."""
    low, high = domain.bounds or (-2.0, 2.0)
    sizes = [
        min(2 ** int(random.integers(1, 6)), size // 2) if size > max(_CHANNELS) else 1 for size in shape
    ]
    is_shared = random.random() < 0.5
    grid = [
        1 if is_shared and 1 < size <= max(_CHANNELS) and axis else -(-size // block)
        for axis, (size, block) in enumerate(zip(shape, sizes, strict=True))
    ]
    marked = random.random(grid) < random.choice([0.1, 0.3, 0.5])
    marked ^= bool(random.random() < 0.5)
    if marked.size and marked.all() == marked.any():  # a picture without an edge
        marked.flat[int(random.integers(marked.size))] ^= True
    for axis, (size, block) in enumerate(zip(shape, sizes, strict=True)):
        if block > 1:
            marked = marked.repeat(block, axis).take(range(size), axis)
    return np.broadcast_to(np.where(marked, high, low), shape)


def _between(bounds: tuple[float, float], shares: Array) -> Array:
    """Scale numbers of 0..1 to `bounds`."""
    low, high = bounds
    return low + (high - low) * np.clip(shares, 0.0, 1.0)


def _companion(
    random: np.random.Generator, shape: tuple[int, ...], domain: Domain, kind: FloatKind, longest: int
) -> Array:
    """Draw values at the edge of the domain: all least, few extreme ones, all equal, or all large."""
    if domain.kind == "real":
        low, one, high = _edges(domain)
        if kind == "sparse":
            signs = np.where(random.random(shape) < 0.5, high[0], high[1])
            chances = random.random(shape)
            return np.asarray(np.where(chances <= max(_SPIKES, chances.min()), signs, low))
        if kind == "large":
            return _large(random, shape, domain)
        return np.asarray(np.broadcast_to(low if kind == "zeros" else one, shape), np.float64)
    low_integer, high_integer = {
        "mask": domain.values or (0, 1),
        "length": (1, _most_steps(domain, longest)),
    }.get(domain.kind, (domain.low, domain.high))
    if kind in ("zeros", "constant"):
        return np.full(shape, low_integer if kind == "zeros" else high_integer)
    return np.asarray(np.where(random.random(shape) < 0.5, low_integer, high_integer))


def _most_steps(domain: Domain, longest: int) -> int:
    """Return the longest length, at least 1: what the graph demands (from 1), else the largest size of the inputs."""
    return max(1, domain.high if domain.low else longest)


def _edges(domain: Domain) -> tuple[Any, Any, tuple[Any, Any]]:
    """Return the domain's zero, its constant, and the two values of spikes."""
    if domain.center:
        center, spread = np.asarray(domain.center), np.asarray(domain.spread)
        return center, center + spread, (center - 10 * spread, center + 10 * spread)
    if domain.bounds is not None:
        low, high = domain.bounds
        return low, (low + high) / 2, (high, high)
    if domain.positive:
        return _SMALLEST, 1.0, (_SPIKE, _SPIKE)
    return 0.0, 1.0, (-_SPIKE, _SPIKE)


def _large(random: np.random.Generator, shape: tuple[int, ...], domain: Domain) -> Array:
    if domain.bounds is not None:
        return np.asarray(np.where(random.random(shape) < 0.5, *domain.bounds))
    if domain.center:
        return np.asarray(domain.center) + 100 * np.asarray(domain.spread) * random.standard_normal(shape)
    drawn = _LARGE * random.standard_normal(shape)
    return np.maximum(np.abs(drawn), _SMALLEST) if domain.positive else drawn


def _integers(random: np.random.Generator, shape: tuple[int, ...], domain: Domain, index: int) -> Array:
    """Draw uniform values in even sets, few repeated values in odd ones, as in text and code."""
    if index % 2 == 0:
        return random.integers(domain.low, domain.high + 1, shape)
    return random.choice(random.integers(domain.low, domain.high + 1, _IDS), shape)


def _mask(random: np.random.Generator, shape: tuple[int, ...], index: int) -> Array:
    """Draw a padding mask: ones, at least half, then zeros; all ones in the first set."""
    if not shape:  # a switch
        return np.asarray(index % 2 == 0)
    size = shape[-1]
    kept = (
        np.full((*shape[:-1], 1), size)
        if index == 0
        else random.integers(-(-size // 2), size + 1, (*shape[:-1], 1))
    )
    return np.arange(size) < kept


def image_axes(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return the channel, height and width axes of NCHW or NHWC with 1, 3 or 4 channels; None for other shapes."""
    if len(shape) != 4:
        return None
    if shape[1] in _CHANNELS and min(shape[2:]) > max(_CHANNELS):
        return 1, 2, 3
    return (3, 1, 2) if shape[3] in _CHANNELS and min(shape[1:3]) > max(_CHANNELS) else None


def _image(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Whole numbers in 0..255: soft structure in several sizes, brightness shared by the channels, and edges."""
    axes = image_axes(shape)
    assert axes is not None
    channels, height, width = (shape[axis] for axis in axes)
    images = np.stack([_picture(random, channels, height, width) for _ in range(shape[0])])
    return images if axes[0] == 1 else images.transpose(0, 2, 3, 1)


def _picture(random: np.random.Generator, channels: int, height: int, width: int) -> Array:
    picture = np.stack([_octaves(random, (height, width))] * channels)
    for plane in picture:
        own = _octaves(random, (height, width))
        own *= 0.5
        plane += own
    for _ in range(6):
        picture[_window(random, height, width)] += random.uniform(-1.0, 1.0, (channels, 1, 1))
    picture -= picture.min()
    picture *= 255.0 / max(float(picture.max()), 1e-6)
    return np.round(picture, out=picture)


def _window(random: np.random.Generator, height: int, width: int) -> tuple[slice, slice, slice]:
    top, left = random.integers(0, height - 1), random.integers(0, width - 1)
    tall, wide = random.integers(1, height // 2 + 1), random.integers(1, width // 2 + 1)
    return slice(None), slice(top, top + tall), slice(left, left + wide)


def _signal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values in -1..1, smooth along the longest axis like sound and features, each row with its own amplitude."""
    if not shape:
        return random.uniform(-1.0, 1.0, ())
    along = int(np.argmax(shape))
    rows = int(np.prod(shape, dtype=np.int64)) // max(shape[along], 1)
    signal = np.stack([_octaves(random, (shape[along],)) * random.uniform(0.2, 1.0) for _ in range(rows)])
    others = tuple(size for axis, size in enumerate(shape) if axis != along)
    return np.moveaxis(signal.reshape(*others, shape[along]), -1, along)


def _octaves(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Sum noise on ever finer grids, each half as strong as the last, interpolated linearly; within -1..1."""
    total = np.zeros(shape)
    points, strength, sum_of_strengths = _COARSEST, 1.0, 0.0
    while True:
        grid = random.uniform(-1.0, 1.0, tuple(min(points, size) for size in shape))
        for axis, size in enumerate(shape):
            grid = _stretch(grid, axis, size)
        grid *= strength
        total += grid
        sum_of_strengths += strength
        if points >= max(shape, default=1):
            total /= sum_of_strengths
            return total
        points, strength = points * 2, strength / 2


def _stretch(grid: Array, axis: int, size: int) -> Array:
    """Interpolate `grid` linearly along `axis` to `size` points."""
    if grid.shape[axis] == size:
        return grid
    position = np.arange(size) * ((grid.shape[axis] - 1) / max(size - 1, 1))
    low = np.minimum(position.astype(np.int64), max(grid.shape[axis] - 2, 0))
    high = np.minimum(low + 1, grid.shape[axis] - 1)
    weight = np.expand_dims(position - low, tuple(range(1, grid.ndim - axis)))
    # In place: new memory for each result takes as long as to compute it.
    stretched: Array = np.take(grid, low, axis)
    stretched *= 1 - weight
    above = np.take(grid, high, axis)
    above *= weight
    stretched += above
    return stretched

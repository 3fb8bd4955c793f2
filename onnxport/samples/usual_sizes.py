"""The sizes that models are usually run at, in the order in which they are tried."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Height and width of images: multiples of 32, since most networks halve them five times.
_IMAGES = (
    *((96, 128), (64, 96), (224, 256), (320, 320), (48, 320), (48, 192), (160, 128)),
    *((224, 224), (256, 256), (32, 32), (28, 28), (640, 640)),
)
# Sizes of a second set: odd, because only those show half a window, and longer than a small constant.
_ODD_IMAGES = ((101, 67),)
_ODD_SEQUENCES = (37, 23)
# Lengths of sequences; several open lengths get different ones first.
_SEQUENCES = (7, 16, 32, 11, 64, 128, 100, 256, 512, 576, 1024, 16000, 1)
# Samples of sound, for models that compute spectra.
_SIGNALS = (16000, 8000, 4000)
_ODD_SIGNALS = (12347, 6007)
# Sizes that are solved with where the usual ones do not do: small ones, then those of spectra and seconds of sound.
_SEQUENCE_GRID = (
    *_SEQUENCES[:-1],
    *(size for size in range(1, 385) if size not in _SEQUENCES),
    *range(400, 2064, 16),
    *(2400, 3000, 4000, 4096, 4800, 8000, 8192, 9600, 11025, 16384, 22050, 24000, 32000, 32768, 44100, 48000),
    *(64000, 65536, 80000, 96000, 128000, 160000, 240000, 320000, 480000),
)
_IMAGE_GRID = (
    *(96, 128, 64, 224, 256, 320, 32, 48, 160, 192, 28, 640, 384, 448, 416, 299, 512, 112, 80, 101, 67),
    *(16, 8, 4, 2, 1, 24, 40, 56, 72, 88, 104, 120, 20, 36, 44, 52, 60, 65, 97, 129, 193, 225, 257, 321),
    *(800, 1024, *(size for size in range(3, 128) if size % 4)),
)
_GRID = 2500  # candidates at a time


@dataclass(frozen=True)
class Symbols:
    """The open dimensions that are no batch.

    Attributes:
        images: symbol -> 0 for a height, 1 for a width.
        sequences: all others in order.
        is_signal: whether the lengths are those of sound.
    """

    images: Mapping[str, int]
    sequences: Sequence[str]
    is_signal: bool

    @property
    def are_any(self) -> bool:
        return bool(self.images or self.sequences)


def usual_sizes(symbols: Symbols) -> Iterator[dict[str, int]]:
    """Yield a size for each symbol, lengths that differ first."""
    usual = (*_SIGNALS, *_SEQUENCES) if symbols.is_signal else _SEQUENCES
    lengths = [dict.fromkeys(symbols.sequences, size) for size in usual]
    if len(symbols.sequences) > 1:
        differing = [
            {name: usual[(start + step) % 4] for step, name in enumerate(symbols.sequences)}
            for start in range(2)
        ]
        lengths = [*differing, *lengths]
    for image in _IMAGES if symbols.images else ((0, 0),):
        for length in lengths if symbols.sequences else ({},):
            yield length | {name: image[axis] for name, axis in symbols.images.items()}


def odd_sizes(symbols: Symbols) -> Iterator[dict[str, int]]:
    """Yield odd sizes for all symbols, and for lengths alone: most networks halve images several times."""
    odd = _ODD_SIGNALS if symbols.is_signal else _ODD_SEQUENCES
    lengths = {name: odd[step % len(odd)] for step, name in enumerate(symbols.sequences)}
    for image in (*_ODD_IMAGES, *_IMAGES[:2]) if symbols.images else ((0, 0),):
        for length in (lengths, dict.fromkeys(symbols.sequences, odd[0])):
            yield length | {name: image[axis] for name, axis in symbols.images.items()}


def size_grid(symbols: Symbols) -> Iterator[dict[str, int]]:
    """Yield a grid over all symbols, the preferred sizes first."""
    names = [*symbols.images, *symbols.sequences]
    most = max(2, int(_GRID ** (1 / max(len(names), 1))))
    axes = [(_IMAGE_GRID if name in symbols.images else _SEQUENCE_GRID)[:most] for name in names]
    places = itertools.product(*(range(len(axis)) for axis in axes))
    for row in sorted(places, key=lambda each: (sum(each), each)):
        yield {name: axis[place] for name, axis, place in zip(names, axes, row, strict=True)}

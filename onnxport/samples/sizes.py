"""Sizes for the open dimensions of a model.

The user's sizes come first. Symbols of one name share one size. The other sizes are proposed in order, and the caller
takes the first that ONNX Runtime accepts: different sizes per axis first, because equal ones would hide a swapped
height and width, then the usual squares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from onnxport.core.errors import NoSizesError, OnnxportError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.formats.input_shapes import Limit

Shapes = dict[str, tuple[int, ...]]

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
_STATES = re.compile(r"^(h|c|h0|c0|hn|cn|.*(state|hidden|cell|past|cache|memory).*)$", re.IGNORECASE)
_BATCH = re.compile(r"batch|^(n|b|bs)$", re.IGNORECASE)


class OpenSizes:
    """The open dimensions of a model's inputs, and proposals for them.

    Args:
        inputs: the model's inputs.
        shapes: every input's shape with the user's sizes (input_shapes.apply_shapes).
        limits: input name -> axis -> the sizes that the user allows (input_shapes.limits).
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        shapes: Mapping[str, Sequence[Dim]],
        limits: Mapping[str, Mapping[int, Limit]] | None = None,
    ) -> None:
        self._shapes = {spec.name: _name_dimensions(spec.name, shapes[spec.name]) for spec in inputs}
        self._limits = {
            self._shapes[name][axis]: limit
            for name, axes in (limits or {}).items()
            for axis, limit in axes.items()
        }
        self._batch = self._batch_symbols()
        self._images, self._sequences = self._other_symbols()

    @property
    def has_batch(self) -> bool:
        """Whether some dimension looks like an open batch."""
        return bool(self._batch)

    @property
    def batch_axes(self) -> dict[str, int]:
        """Input name -> axis of its open batch; without inputs that have none."""
        return {
            name: axis
            for name, dims in self._shapes.items()
            for axis, dim in enumerate(dims)
            if isinstance(dim, str) and dim in self._batch
        }

    @property
    def is_open(self) -> bool:
        """Whether any dimension is open."""
        return bool(self._batch or self._images or self._sequences)

    @property
    def untold(self) -> dict[str, tuple[int, ...]]:
        """Input name -> its open axes that are no batch, whose usual size is unknown."""
        axes = {
            name: tuple(
                axis for axis, dim in enumerate(dims) if isinstance(dim, str) and dim not in self._batch
            )
            for name, dims in self._shapes.items()
        }
        return {name: found for name, found in axes.items() if found}

    def proposals(self, batch: int, *, odd: bool = False) -> Iterator[Shapes]:
        """Yield concrete shapes of all inputs, each once, the best for finding faults first; or the `odd` ones."""
        seen = []
        for proposed in self._odd_sizes() if odd else self._proposed_sizes():
            for sizes in self._within_limits(proposed | dict.fromkeys(self._batch, batch)):
                shapes = {
                    name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in dims)
                    for name, dims in self._shapes.items()
                }
                if shapes not in seen:
                    seen.append(shapes)
                    yield shapes

    def _within_limits(self, sizes: dict[str, int]) -> Iterator[dict[str, int]]:
        """Yield sizes within the user's limits: the nearest, and each choice in turn."""
        within = {
            name: self._limits[name].nearest(size) if name in self._limits else size
            for name, size in sizes.items()
        }
        chosen = {
            name: limit.choices for name, limit in self._limits.items() if limit.choices and name in sizes
        }
        for turn in range(max(map(len, chosen.values()), default=1)):
            yield within | {name: choices[turn % len(choices)] for name, choices in chosen.items()}

    def refused(self, refusal: OnnxportError | None, told: str) -> NoSizesError:
        """Return the error for a model that accepts none of the proposals.

        Args:
            refusal: error of the last one; None where none was tried.
            told: the extent of the search, for the message.
        """
        name, dims = next(
            (name, dims) for name, dims in self._shapes.items() if any(isinstance(dim, str) for dim in dims)
        )
        # No example sizes: the usual ones were tried.
        example = ",".join(str(dim) if isinstance(dim, int) else "SIZE" for dim in dims)
        return NoSizesError(
            f"no sizes were found that the model accepts for the open dimensions of input {name!r}",
            why=f"{told}; the last try: {refusal.why}" if refusal is not None else told,
            fix=f"give the sizes that it was exported with: --shape {name}={example}, or inputs of your own: "
            "--inputs DIR",
        )

    def _odd_sizes(self) -> Iterator[dict[str, int]]:
        """Yield odd sizes for all open dimensions, and for lengths alone: most networks halve images several times."""
        lengths = {
            name: _ODD_SEQUENCES[step % len(_ODD_SEQUENCES)] for step, name in enumerate(self._sequences)
        }
        for image in (*_ODD_IMAGES, *_IMAGES[:2]) if self._images else ((0, 0),):
            for length in (lengths, dict.fromkeys(self._sequences, _ODD_SEQUENCES[0])):
                yield length | {name: image[axis] for name, axis in self._images.items()}

    def _proposed_sizes(self) -> Iterator[dict[str, int]]:
        lengths = [dict.fromkeys(self._sequences, size) for size in _SEQUENCES]
        if len(self._sequences) > 1:
            differing = [
                {name: _SEQUENCES[(start + step) % 4] for step, name in enumerate(self._sequences)}
                for start in range(2)
            ]
            lengths = [*differing, *lengths]
        for image in _IMAGES if self._images else ((0, 0),):
            for length in lengths if self._sequences else ({},):
                yield dict(length) | {name: image[axis] for name, axis in self._images.items()}

    def _batch_symbols(self) -> set[str]:
        """Return the open first dimensions, symbols called batch, and first open dimensions of recurrent states."""
        symbols = set()
        for name, dims in self._shapes.items():
            for axis, dim in enumerate(dims):
                state = _STATES.match(name) and axis == _first_open(dims)
                if isinstance(dim, str) and (axis == 0 or _BATCH.search(dim) or state):
                    symbols.add(dim)
        return symbols

    def _other_symbols(self) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return the symbols of height (0) and width (1), and all others in order."""
        images: dict[str, int] = {}
        sequences: list[str] = []
        for dims in self._shapes.values():
            spatial = _spatial(dims)
            for axis, dim in enumerate(dims):
                if not isinstance(dim, str) or dim in self._batch or dim in images or dim in sequences:
                    continue
                if axis in spatial:
                    images[dim] = spatial.index(axis)
                else:
                    sequences.append(dim)
        return images, tuple(sequences)


def _name_dimensions(name: str, dims: Sequence[Dim]) -> tuple[int | str, ...]:
    """Give dimensions without a name a unique one; some exporters write "?" for no name."""
    return tuple(
        f"{name} {axis}" if dim is None or dim in ("", "?") or (isinstance(dim, int) and dim < 0) else dim
        for axis, dim in enumerate(dims)
    )


def _first_open(dims: Sequence[int | str]) -> int:
    return next((axis for axis, dim in enumerate(dims) if isinstance(dim, str)), -1)


def _spatial(dims: Sequence[int | str]) -> tuple[int, ...]:
    """Return the height and width axes of an image batch, by the position of the channels; () for other ranks."""
    if len(dims) != 4:
        return ()
    return (1, 2) if dims[3] in (1, 3, 4) and dims[1] not in (1, 3, 4) else (2, 3)

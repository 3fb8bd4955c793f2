"""Sizes for the open dimensions of a model.

The user's sizes come first. Symbols of one name share one size. The other sizes are proposed in order, and the caller
takes the first that ONNX Runtime accepts: different sizes per axis first, because equal ones would hide a swapped
height and width, then the usual squares.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnxport.core.errors import NoSizesError, OnnxportError
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.formats.input_shapes import Limit

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.samples.shapes.analysis import Constraint
    from onnxport.samples.shapes.solver import SizeSolver

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
# Sizes that are solved with where the usual ones do not do: small ones, then those of spectra and seconds of sound.
_SEQUENCE_GRID = (
    *_SEQUENCES[:-1],
    *(size for size in range(1, 385) if size not in _SEQUENCES),
    *range(400, 2064, 16),
    *(2400, 3000, 4000, 4096, 4800, 8000, 8192, 9600, 11025, 16384, 22050, 24000, 32000, 32768, 44100, 48000),
    *(64000, 65536, 80000, 96000, 128000, 160000, 240000, 320000, 480000),
)
_IMAGE_GRID = (
    *(
        96,
        128,
        64,
        224,
        256,
        320,
        32,
        48,
        160,
        192,
        28,
        640,
        384,
        448,
        416,
        299,
        512,
        112,
        80,
        101,
        67,
        16,
        8,
        4,
        2,
        1,
    ),
    *(24, 40, 56, 72, 88, 104, 120, 20, 36, 44, 52, 60, 65, 97, 129, 193, 225, 257, 321, 800, 1024),
    *(size for size in range(3, 128) if size % 4),
)
_GRID = 2500  # candidates at a time
_MOST_SOLVED = 12
_DOUBTED = 3
_NAMED = 3  # constraints in a message
# Samples of sound, for models that compute spectra.
_SIGNALS = (16000, 8000, 4000)
_ODD_SIGNALS = (12347, 6007)
_SIGNAL_NAME = re.compile(r"audio|wave|^wavs?$|signal|^pcm|^samples?$", re.IGNORECASE)
_STATES = re.compile(r"^(h|c|h0|c0|hn|cn|.*(state|hidden|cell|past|cache|memory).*)$", re.IGNORECASE)
_BATCH = re.compile(r"batch", re.IGNORECASE)
_SHORT_BATCH = re.compile(r"^(n|b|bs)$", re.IGNORECASE)


class OpenSizes:
    """The open dimensions of a model's inputs, and proposals for them.

    Args:
        inputs: the model's inputs.
        shapes: every input's shape with the user's sizes (input_shapes.apply_shapes).
        limits: input name -> axis -> the sizes that the user allows (input_shapes.limits).
        graph: what the sizes are solved with, without functions; None to propose the usual ones unchecked.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        shapes: Mapping[str, Sequence[Dim]],
        limits: Mapping[str, Mapping[int, Limit]] | None = None,
        graph: Model | None = None,
    ) -> None:
        self._shapes = {spec.name: _name_dimensions(spec.name, shapes[spec.name]) for spec in inputs}
        self._limits = {
            self._shapes[name][axis]: limit
            for name, axes in (limits or {}).items()
            for axis, limit in axes.items()
        }
        self._declared = dict(self._shapes)
        self._bound: Mapping[str, int | str] = {}
        self._solver: SizeSolver | None = None
        self._contradiction: tuple[Constraint, ...] = ()
        self._is_signal = False
        self._sort_symbols()
        if graph is not None and any(isinstance(dim, str) for dims in self._shapes.values() for dim in dims):
            self._solve_with(graph)

    def _sort_symbols(self) -> None:
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
    def is_contradictory(self) -> bool:
        """Whether the graph was solved and no sizes meet the demands of all operators."""
        return bool(self._contradiction)

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
        """Yield concrete shapes of all inputs, each once, the best for finding faults first; or the `odd` ones.

        With a graph these are sizes that every operator accepts: the usual ones, else others that are solved for. The
        first usual ones come last all the same, since shape inference does not know every operator.
        """
        seen = []
        usual = list(self._usual_sizes(self._odd_sizes() if odd else self._proposed_sizes(), batch))
        for sizes in self._solved_sizes(usual, batch, odd):
            shapes = {
                name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in dims)
                for name, dims in self._shapes.items()
            }
            if shapes not in seen:
                seen.append(shapes)
                yield shapes

    def _usual_sizes(self, proposals: Iterable[dict[str, int]], batch: int) -> Iterator[dict[str, int]]:
        for proposed in proposals:
            yield from self._within_limits(proposed | dict.fromkeys(self._batch, batch))

    def _solved_sizes(
        self, usual: Sequence[dict[str, int]], batch: int, odd: bool
    ) -> Iterator[dict[str, int]]:
        if self._solver is None:
            yield from usual
            return
        accepted = list(self._accepted(usual))
        if not accepted and not odd and usual and usual[0]:
            accepted = list(itertools.islice(self._accepted(self._grid(batch)), _MOST_SOLVED))
        yield from accepted
        if not odd:
            yield from usual[:_DOUBTED]

    def _accepted(self, rows: Sequence[dict[str, int]]) -> Iterator[dict[str, int]]:
        """Yield the sizes that the operators accept; those that follow from others replace the proposed ones."""
        if not rows or self._solver is None:
            return
        solution = self._solver.solve(
            {symbol: np.array([row[symbol] for row in rows], np.int64) for symbol in rows[0]}
        )
        holds = np.broadcast_to(solution.holds, len(rows))
        if not holds.any():
            self._contradiction = solution.contradiction
        for row in map(int, np.flatnonzero(holds)):
            solved = {
                symbol: int(sizes[row if len(sizes) > 1 else 0]) for symbol, sizes in solution.sizes.items()
            }
            if all(size in self._limits[symbol] for symbol, size in solved.items() if symbol in self._limits):
                yield rows[row] | solved

    def _grid(self, batch: int) -> list[dict[str, int]]:
        """Return a grid over all open sizes, the preferred ones first."""
        symbols = [*self._images, *self._sequences]
        most = max(2, int(_GRID ** (1 / max(len(symbols), 1))))
        axes = [(_IMAGE_GRID if symbol in self._images else _SEQUENCE_GRID)[:most] for symbol in symbols]
        rows = sorted(
            itertools.product(*(range(len(axis)) for axis in axes)), key=lambda places: (sum(places), places)
        )
        return list(
            self._usual_sizes(
                (
                    {symbol: axis[place] for symbol, axis, place in zip(symbols, axes, row, strict=True)}
                    for row in rows
                ),
                batch,
            )
        )

    def _solve_with(self, graph: Model) -> None:
        """Let the graph decide what it can; exporters also give one name to sizes that differ."""
        # Imported here: it reads graphs, which many who only count open dimensions do without.
        from onnxport.samples.shapes.solver import SizeSolver, reads_signal

        shared = dict(self._shapes)
        named = any(_SIGNAL_NAME.search(name) for name, dims in self._shapes.items() if len(dims) < 4)
        self._is_signal = named or any(map(reads_signal, graph.graph))
        self._solver = SizeSolver(graph, self._shapes)
        self._substitute(self._solver.bound())
        usual = list(self._usual_sizes(self._proposed_sizes(), 1))
        if any(True for _ in self._accepted(usual)) or any(True for _ in self._accepted(self._grid(1))):
            return
        split = _split_names(shared, self._batch)
        if split != shared:
            self._shapes = split
            self._solver = SizeSolver(graph, split)
            self._substitute(self._solver.bound())

    def _substitute(self, bound: Mapping[str, int | str]) -> None:
        """Replace the symbols that the graph decides by their size or by the symbol that they equal."""
        self._bound = bound
        for symbol, value in bound.items():
            limit = self._limits.pop(symbol, None)
            if limit is not None and isinstance(value, str):
                self._limits.setdefault(value, limit)
        self._shapes = {
            name: tuple(bound.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
            for name, dims in self._shapes.items()
        }
        self._sort_symbols()

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
        name, dims = next(iter(self._declared.items()))
        for each, declared in self._declared.items():
            if any(isinstance(dim, str) for dim in declared):
                name, dims = each, declared
                break
        # No example sizes: the usual ones were tried.
        example = ",".join(str(dim) if isinstance(dim, int) else "SIZE" for dim in dims)
        if refusal is not None:
            told = f"{told}; the last try: {refusal.why}"
        if self._contradiction:
            told = f"no size meets all demands: {self._demands()}; {told}"
        return NoSizesError(
            f"no sizes were found that the model accepts for the open dimensions of input {name!r}",
            why=told,
            fix=f"give the sizes that it was exported with: --shape {name}={example}, or inputs of your own: "
            "--inputs DIR",
        )

    def _demands(self) -> str:
        """Return the demands that contradict each other, in words."""
        origins = self._solver.origins if self._solver is not None else {}
        decided = [
            f"{symbol!r} is {size} for {origins[symbol]}"
            for symbol, size in self._bound.items()
            if isinstance(size, int) and origins.get(symbol)
        ]
        named = [f"{each.op} {each.node!r} takes {each.text}" for each in self._contradiction[-_NAMED:]]
        return ", ".join([*decided[-_NAMED:], *named])

    def _odd_sizes(self) -> Iterator[dict[str, int]]:
        """Yield odd sizes for all open dimensions, and for lengths alone: most networks halve images several times."""
        odd = _ODD_SIGNALS if self._is_signal else _ODD_SEQUENCES
        lengths = {name: odd[step % len(odd)] for step, name in enumerate(self._sequences)}
        for image in (*_ODD_IMAGES, *_IMAGES[:2]) if self._images else ((0, 0),):
            for length in (lengths, dict.fromkeys(self._sequences, odd[0])):
                yield length | {name: image[axis] for name, axis in self._images.items()}

    def _proposed_sizes(self) -> Iterator[dict[str, int]]:
        usual = (*_SIGNALS, *_SEQUENCES) if self._is_signal else _SEQUENCES
        lengths = [dict.fromkeys(self._sequences, size) for size in usual]
        if len(self._sequences) > 1:
            differing = [
                {name: usual[(start + step) % 4] for step, name in enumerate(self._sequences)}
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
                is_first = axis == _first_open(dims)
                named = (
                    _BATCH.search(dim) or (is_first and _SHORT_BATCH.search(dim))
                    if isinstance(dim, str)
                    else False
                )
                if isinstance(dim, str) and (axis == 0 or named or (is_first and _STATES.match(name))):
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


def _split_names(
    shapes: Mapping[str, tuple[int | str, ...]], batch: Collection[str]
) -> dict[str, tuple[int | str, ...]]:
    """Give each input its own symbols, but for the batch."""
    return {
        name: tuple(f"{dim} of {name}" if isinstance(dim, str) and dim not in batch else dim for dim in dims)
        for name, dims in shapes.items()
    }


def _first_open(dims: Sequence[int | str]) -> int:
    return next((axis for axis, dim in enumerate(dims) if isinstance(dim, str)), -1)


def _spatial(dims: Sequence[int | str]) -> tuple[int, ...]:
    """Return the height and width axes of an image batch, by the position of the channels; () for other ranks."""
    if len(dims) != 4:
        return ()
    return (1, 2) if dims[3] in (1, 3, 4) and dims[1] not in (1, 3, 4) else (2, 3)

"""Sizes for the open dimensions of a model.

The user's sizes come first. Symbols of one name share one size. The other sizes are proposed in order, and the caller
takes the first that ONNX Runtime accepts: different sizes per axis first, because equal ones would hide a swapped
height and width, then the usual squares.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from onnxport.core.errors import NoSizesError, OnnxportError
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import Dim, TensorSpec
from onnxport.formats.input_shapes import Limit
from onnxport.samples.usual_sizes import Symbols, odd_sizes, size_grid, usual_sizes

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.samples.shapes.analysis import Constraint
    from onnxport.samples.shapes.solver import SizeSolver

Shapes = dict[str, tuple[int, ...]]

# Tried for open first dimensions where no operator accepts the batch.
_LENGTHS = (2, 3, 8, 16)
_MOST_SOLVED = 12
_DOUBTED = 3
_NAMED = 3  # constraints in a message
_SIGNAL_NAME = re.compile(r"audio|wave|^wavs?$|signal|^pcm|^samples?$", re.IGNORECASE)
_STATES = re.compile(r"^(h|c|h0|c0|hn|cn|.*(state|hidden|cell|past|cache|memory).*)$", re.IGNORECASE)
_BATCH = re.compile(r"batch", re.IGNORECASE)
# "N" behind a fixed axis is as often a number of boxes or tokens.
_SHORT_BATCH = re.compile(r"^bs?$", re.IGNORECASE)


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
        self._given_limits = {name: dict(axes) for name, axes in (limits or {}).items()}
        self._declared = dict(self._shapes)
        self._bound: Mapping[str, int | str] = {}
        self._solver: SizeSolver | None = None
        self._solved: dict[tuple[int, bool], list[dict[str, int]]] = {}
        self._contradiction: tuple[Constraint, ...] = ()
        self._is_signal = False
        self._sort_symbols()
        if graph is not None and self.is_open:
            self._solve_with(graph)

    def _sort_symbols(self) -> None:
        self._batch = self._batch_symbols()
        images, sequences = self._other_symbols()
        self._symbols = Symbols(images, sequences, self._is_signal)
        # Of symbols that several axes share, the first limit guides proposals; `proposals` checks each.
        self._limits: dict[str, Limit] = {}
        for name, axis, limit in self._each_limit():
            dim = self._shapes[name][axis]
            if isinstance(dim, str):
                self._limits.setdefault(dim, limit)

    def _each_limit(self) -> Iterator[tuple[str, int, Limit]]:
        """Yield input name, axis and limit of every limit that the user gave."""
        for name, axes in self._given_limits.items():
            for axis, limit in axes.items():
                yield name, axis, limit

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
        return bool(self._batch or self._symbols.images or self._symbols.sequences)

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
        usual = self._usual_rows(batch, odd)
        rows = usual if self._solver is None else self._solved_rows(usual, batch, odd)
        # The first usual ones again, but no odd ones: shape inference does not know every operator.
        for sizes in (*rows, *(() if odd else usual[:_DOUBTED])):
            shapes = {
                name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in dims)
                for name, dims in self._shapes.items()
            }
            if shapes not in seen and all(
                shapes[name][axis] in limit for name, axis, limit in self._each_limit()
            ):
                seen.append(shapes)
                yield shapes

    def longer(self) -> Iterator[Shapes]:
        """Yield sizes to try after all of batch 1: it may be a length, of which a Squeeze takes a single one away."""
        for batch in _LENGTHS[:2] if self._batch else ():
            yield from islice(self.proposals(batch), 1)

    def _usual_rows(self, batch: int, odd: bool) -> list[dict[str, int]]:
        return list(self._complete((odd_sizes if odd else usual_sizes)(self._symbols), batch))

    def _complete(self, proposals: Iterable[dict[str, int]], batch: int) -> Iterator[dict[str, int]]:
        """Yield the proposals within the user's limits, with the batch."""
        for proposed in proposals:
            yield from self._within_limits(proposed | dict.fromkeys(self._batch, batch))

    def _solved_rows(self, usual: Sequence[dict[str, int]], batch: int, odd: bool) -> list[dict[str, int]]:
        """Return the usual sizes that all operators accept; where there are none, others of a grid."""
        if (batch, odd) not in self._solved:
            found, contradiction = self._accept(usual)
            if not found and not odd and self._symbols.are_any:
                found, contradiction = self._accept(list(self._complete(size_grid(self._symbols), batch)))
                found = found[:_MOST_SOLVED]
            if not found and not odd:
                # A dimension that is open and first may be a length, of which one is too few.
                found = [row for other in _LENGTHS for row in self._accept(self._usual_rows(other, odd))[0]]
                contradiction = () if found else contradiction
            self._solved[batch, odd] = found
            if not odd:
                self._contradiction = contradiction
        return self._solved[batch, odd]

    def _accept(self, rows: Sequence[dict[str, int]]) -> tuple[list[dict[str, int]], tuple[Constraint, ...]]:
        """Return the sizes that the operators accept, or else the constraints that contradict each other.

        Sizes that follow from others replace the proposed ones.
        """
        if not rows or self._solver is None:
            return [], ()
        solution = self._solver.solve(
            {symbol: np.array([row[symbol] for row in rows], np.int64) for symbol in rows[0]}
        )
        holds = np.broadcast_to(solution.holds, len(rows))
        found = []
        for row in map(int, np.flatnonzero(holds)):
            solved = {
                symbol: int(sizes[row if len(sizes) > 1 else 0]) for symbol, sizes in solution.sizes.items()
            }
            if all(size in self._limits[symbol] for symbol, size in solved.items() if symbol in self._limits):
                found.append(rows[row] | solved)
        return found, () if found else solution.contradiction

    def _solve_with(self, graph: Model) -> None:
        """Let the graph decide what it can; exporters also give one name to sizes that differ."""
        # Imported here: it reads graphs, which many who only count open dimensions do without.
        from onnxport.samples.shapes.solver import SizeSolver, reads_signal

        shared = dict(self._shapes)
        named = any(_SIGNAL_NAME.search(name) for name, dims in self._shapes.items() if len(dims) < 4)
        self._is_signal = named or any(map(reads_signal, graph.graph))
        self._solver = SizeSolver(graph, self._shapes)
        self._substitute(self._solver.bound())
        if self._solved_rows(self._usual_rows(1, odd=False), 1, odd=False):
            return
        split = _split_names(shared, self._batch)
        if split != shared:
            self._solved.clear()
            self._shapes = split
            self._sort_symbols()
            self._solver = SizeSolver(graph, split)
            self._substitute(self._solver.bound())

    def _substitute(self, bound: Mapping[str, int | str]) -> None:
        """Replace the symbols that the graph decides by their size or by the symbol that they equal.

        A size outside the user's limits stays open: ONNX Runtime has the last word.
        """
        self._bound = bound
        within = {
            symbol: value
            for symbol, value in bound.items()
            if isinstance(value, str) or symbol not in self._limits or value in self._limits[symbol]
        }
        self._shapes = {
            name: tuple(within.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
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
        missing = self._unnamed()
        named = ", ".join(map(repr, missing))
        # No example sizes: the usual ones were tried.
        options = quote_option(
            "--shape",
            *(
                f"{name}={','.join('SIZE' if isinstance(dim, str) else str(dim) for dim in dims)}"
                for name, dims in missing.items()
            ),
        )
        if refusal is not None:
            told = f"{told}; the last try: {refusal.why}"
        if self._contradiction:
            told = f"no size meets all demands: {self._demands()}; {told}"
        return NoSizesError(
            f"no sizes were found that the model accepts for the open dimensions of "
            f"{'input' if len(missing) == 1 else 'inputs'} {named}",
            why=told,
            fix=f"give the sizes that it was exported with: {options}, or inputs of your own: --inputs DIR",
        )

    def _unnamed(self) -> dict[str, tuple[int | str, ...]]:
        """Return the inputs that decide every open size, in order: not those whose sizes earlier ones share."""
        decided: set[str] = set()
        missing = {}
        for name, dims in self._declared.items():
            symbols = {dim for dim in dims if isinstance(dim, str)}
            if symbols - decided:
                missing[name] = dims
                decided |= symbols
        return missing or dict(list(self._declared.items())[:1])

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

    def _batch_symbols(self) -> set[str]:
        """Return the open first dimensions, symbols called batch, and first open dimensions of recurrent states."""
        symbols = set()
        for name, dims in self._shapes.items():
            for axis, dim in enumerate(dims):
                if not isinstance(dim, str):
                    continue
                is_told = axis == _first_open(dims) and (_STATES.match(name) or _SHORT_BATCH.search(dim))
                if axis == 0 or _BATCH.search(dim) or is_told:
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

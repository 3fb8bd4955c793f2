"""Booster: a Forest as a Framework, with the answers of its own library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import CannotConvertError, InputError, UsageError
from onnxport.core.shell_words import quote_option
from onnxport.exporters.classical.boosters.forest import Answers, Forest, apply_link
from onnxport.exporters.classical.boosters.graph import INPUT, build_model
from onnxport.exporters.classical.tabular import Columns, TabularModel
from onnxport.exporters.params import ExportParams
from onnxport.exporters.sources import Source

# How many parts a forest is summed in, each rounded to float32, for the noise of its sums.
_PARTS = 8


@dataclass(frozen=True)
class Library:
    """The library's own answers for a table [rows, columns]."""

    predict: Callable[[Array], Mapping[str, Any]]  # the answers by output name
    # What the trees of the rounds from `start` to before `stop` sum up to, without the base: [rows,
    # targets], or [rows] for a single target.
    margins: Callable[[Array, int, int], Array]
    rounds: int  # how many there are


class Booster(TabularModel):
    """Boosted trees over one tensor of all columns, in which categories are codes.

    Other kernels are the library's own sums over parts of the trees, the last first: a float32 sum in another order.

    Args:
        own: the dtype in which the library compares.

    Raises:
        UsageError: --input names other columns than the model has; --float64 of a library that compares in float32.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        forest: Forest,
        answers: Answers,
        library: Library,
        params: ExportParams,
        own: str,
    ) -> None:
        if params.float64 and own == "float32":
            raise UsageError(
                f"--float64 has no effect on {name.partition(',')[0]}",
                why="it compares in float32 itself",
                fix="leave it out",
            )
        self.has_other_kernels = True
        dtype = "float64" if params.float64 else "float32"
        given = _input_name(forest, params)
        read = Columns.one_tensor(given, "float64" if params.float64 else own, forest.width)
        self.forest, self.answers = forest, answers
        self._library, self._table = library, given

        def convert(opset: int | None) -> onnx.ModelProto:
            return build_model(forest, answers, dtype, opset, given)

        def predict(feeds: Feeds) -> Mapping[str, Any]:
            return library.predict(feeds[given])

        super().__init__(
            kind=kind,
            name=name,
            exporter="onnxport",
            inputs=read.specs,
            convert=convert,
            answer=predict,
            classes=answers.classes,
            features=read.names,
            domains={given: forest.domain(dtype)},
        )

    def run(self, feeds: Feeds, *, other_kernels: bool = False) -> dict[str, Array]:
        if not other_kernels:
            return super().run(feeds)
        return self.shaped(apply_link(self._in_parts(feeds[self._table]), self.answers))

    def _in_parts(self, table: Array) -> Array:
        rounds, targets = self._library.rounds, self.forest.targets
        ends = np.unique(np.linspace(0, rounds, _PARTS + 1).astype(int))
        total = np.broadcast_to(np.array(self.forest.base, np.float32), (len(table), targets))
        for start, stop in reversed(list(pairwise(ends.tolist()))):
            part = self._library.margins(table, start, stop).reshape(len(table), targets)
            total = total + part.astype(np.float32)
        return np.asarray(total * np.float32(self.answers.scale))


def unknown_objective(source: Source, objective: str, known: Iterable[str]) -> CannotConvertError:
    return CannotConvertError(
        f"{source.name} has the objective {objective!r}",
        why="onnxport does not support its output function",
        fix=f"supported are {', '.join(known)}",
    )


def fitted_booster(model: Any, source: Source, attribute: str) -> Any:
    """Return the booster of an estimator by one of its attributes or methods; InputError if it is not fitted."""
    from sklearn.exceptions import NotFittedError

    try:
        found = getattr(model, attribute)
        return found() if callable(found) else found
    except NotFittedError as error:
        raise InputError(
            f"the {type(model).__name__} of {source.name} was not fitted", fix="call fit() before the export"
        ) from error


def _input_name(forest: Forest, params: ExportParams) -> str:
    if not params.input:
        return INPUT
    name, spec = next(iter(params.input.items()))
    if len(params.input) > 1 or len(spec.shape) != 2 or spec.shape[1] != forest.width:
        raise UsageError(
            f"the model takes one table of {forest.width} columns",
            why=f"--input says {', '.join(map(str, params.input.values()))}",
            fix=f"give {quote_option('--input', f'{name}=1,{forest.width}')}, or leave it out",
        )
    wide = "float64" if params.float64 else "float32"
    if spec.dtype not in ("float32", wide):
        raise UsageError(
            f"--input says that {name!r} is {spec.dtype}, and the file takes {wide}",
            fix=f"give {quote_option('--input', f'{name}=1,{forest.width}')}",
        )
    return name

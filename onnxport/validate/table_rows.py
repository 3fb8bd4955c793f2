"""Notes on the rows of a table that a candidate answers differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import printable
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.base import RunError
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.comparison import compare
from onnxport.validate.reference import Reference
from onnxport.validate.rollout import Run

_SHOWN = 5
_COLUMNS = 12  # of a row
_SCORES = 6


@dataclass(frozen=True)
class Row:
    """One row that differs.

    Attributes:
        label, number: the set that it is from, and its number in the file or set.
        feeds: its values, of every input [1, ...].
        differing: output to both sides' answers.
    """

    label: str
    number: int
    feeds: Mapping[str, Array]
    differing: Mapping[str, tuple[Array, Array]]


def differing_rows(reference: Reference, candidate: Run, features: Sequence[str]) -> tuple[str, ...]:
    """Return notes on the rows that differ, a few of them in full, and on whether float32 explains them."""
    try:
        rows = [row for each in reference.sets for row in _rows(reference, candidate, each)]
    except RunError:
        return ()
    if not rows:
        return ()
    ordinary = [row for row in rows if row.label] or rows
    total = sum(next(iter(each.shapes.values()), (1,))[0] for each in reference.sets)
    shown = ordinary[:_SHOWN]
    first = f", the first {len(shown)}:" if len(rows) > len(shown) else ":"
    plural = "" if len(rows) == 1 else "s"
    notes = [f"{len(rows)} row{plural} of {total} differ{'' if plural else 's'}{first}"]
    notes += [_describe(row, features) for row in shown]
    return (*notes, *_explain(reference, shown))


def _rows(reference: Reference, candidate: Run, answered: AnsweredSet) -> Iterator[Row]:
    feeds, answers = reference.answers(answered)
    given = candidate.run(feeds)
    found: dict[int, dict[str, tuple[Array, Array]]] = {}
    for name, answer in answers.items():
        compared = compare(name, answer, given[name], answered.noise[name], reference.tolerance)
        for row in compared.rows:
            found.setdefault(row, {})[name] = answer[row], given[name][row]
    for row, differing in sorted(found.items()):
        values = {name: array[row : row + 1] for name, array in feeds.items()}
        yield Row(answered.label, answered.first_row + row, values, differing)


def _describe(row: Row, features: Sequence[str]) -> str:
    answers = "; ".join(
        f"{name} {_format_answer(ours)}, in ONNX {_format_answer(theirs)}"
        for name, (ours, theirs) in row.differing.items()
    )
    return printable(f"row {row.number} of {row.label}: {_format_values(row, features)}: {answers}")


def _format_values(row: Row, features: Sequence[str]) -> str:
    if len(row.feeds) == 1:
        ((name, array),) = row.feeds.items()
        cells = array.ravel().tolist()
        if len(features) == len(cells):
            return _shorten([f"{feature}={cell!r}" for feature, cell in zip(features, cells, strict=True)])
        return f"{name}=[{_shorten([repr(cell) for cell in cells])}]"
    return _shorten([f"{name}={array.ravel()[0]!r}" for name, array in row.feeds.items()])


def _shorten(cells: Sequence[str]) -> str:
    more = f", … {len(cells) - _COLUMNS} more" if len(cells) > _COLUMNS else ""
    return ", ".join(cells[:_COLUMNS]) + more


def _format_answer(answer: Array) -> str:
    values = np.asarray(answer).ravel()
    texts = [
        f"{value:.7g}" if values.dtype.kind == "f" else str(value) for value in values[:_SCORES].tolist()
    ]
    if values.size == 1:
        return texts[0]
    return f"[{', '.join(texts)}{', …' if values.size > _SCORES else ''}]"


def _explain(reference: Reference, rows: Sequence[Row]) -> tuple[str, ...]:
    """Note that the reference itself answers like the candidate when the rows are rounded to float32."""
    if not any(spec.dtype == "float64" for spec in reference.inputs):
        return ()
    rounded: Feeds = {spec.name: _as_float32(spec, rows) for spec in reference.inputs}
    try:
        answers = reference.run(rounded)
    except RunError:
        return ()
    same = all(
        _alike(answers[name][place], theirs)
        for place, row in enumerate(rows)
        for name, (_, theirs) in row.differing.items()
    )
    if not same:
        return ()
    which = "this row is" if len(rows) == 1 else "these rows are"
    return (
        f"{reference.name} itself gives these answers when {which} rounded to float32: "
        "a value then lies on the other side of a threshold",
    )


def _as_float32(spec: TensorSpec, rows: Sequence[Row]) -> Array:
    values = np.concatenate([row.feeds[spec.name] for row in rows])
    if spec.dtype != "float64":
        return values
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _alike(ours: Array, theirs: Array) -> bool:
    if np.asarray(ours).dtype.kind != "f":
        return bool(np.all(ours == theirs))
    scale = float(np.max(np.abs(theirs), initial=0.0))
    return bool(np.allclose(ours, theirs, rtol=1e-4, atol=1e-5 * scale, equal_nan=True))

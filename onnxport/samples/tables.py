"""Tables: a `.csv` file whose columns are a model's inputs, by the names in its header or in order.

Numbers are read as float64 and cast to the input's type. Missing values are those of pandas: NaN among numbers, and the
text "nan" among strings, for which ONNX has no other.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core import limits
from onnxport.core.arrays import Array
from onnxport.core.errors import InputError
from onnxport.formats.artifact import TensorSpec

SUFFIX = ".csv"
# Rows of one set of inputs: enough for few runs, few enough for the memory of a wide table.
ROWS = 1000
_MISSING = frozenset(
    ",#N/A,#N/A N/A,#NA,-1.#IND,-1.#QNAN,-NaN,-nan,1.#IND,1.#QNAN,<NA>,N/A,NA,NULL,NaN,None,n/a,nan,null".split(
        ","
    )
)
_MISSING_TEXT = "nan"
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_NAMED = 8  # columns in a message
_LONGEST = 64  # characters of a number


@dataclass(frozen=True)
class _Table:
    """Cells by column; names are "" where there is no header."""

    path: Path
    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> tuple[str, ...]:
        """Return a column; raises InputError where there is none of that name, or two."""
        if self.names.count(name) == 1:
            return self.columns[self.names.index(name)]
        if name in self.names:
            raise InputError(f"{self.path} has two columns {name!r}", fix="rename one of them")
        if not any(self.names):
            raise InputError(
                f"{self.path} has no column {name!r}",
                why="its first line has numbers instead of names",
                fix="add a first line with the columns' names",
            )
        raise InputError(f"{self.path} has no column {name!r}", why=f"it has {_join_names(self.names)}")


def read_table(path: Path, inputs: Sequence[TensorSpec], features: Sequence[str] = ()) -> dict[str, Array]:
    """Read the N rows of a file: one input [N, C], or [N, 1] or [N] per column.

    Args:
        features: names of the columns of a model's only input, in order; a file may have others too.

    Raises:
        InputError: it is unreadable, a column is missing or superfluous, or a cell does not fit the input's type.
    """
    table = _read(path)
    if len(inputs) == 1 and len(inputs[0].shape) == 2:
        return {inputs[0].name: _stack_columns(table, inputs[0], features)}
    arrays = {}
    for spec in inputs:
        if len(spec.shape) not in (1, 2) or (len(spec.shape) == 2 and spec.shape[1] not in (1, None)):
            raise InputError(
                f"{path} cannot be fed to {spec.name!r}",
                why=f"the model takes {spec}, and a column of a table is [N, 1]",
                fix="use an .npz file with an array per input",
            )
        values = _parse_column(table, spec.name, table.column(spec.name), spec.dtype)
        arrays[spec.name] = values if len(spec.shape) == 1 else values[:, None]
    return arrays


def _stack_columns(table: _Table, spec: TensorSpec, features: Sequence[str]) -> Array:
    """Return a model's only input [N, C]: the columns that it names, else all."""
    width = spec.shape[1]
    named = list(features) if any(table.names) else []
    if not named and width in (1, None) and spec.name in table.names:
        named = [spec.name]
    names = named or list(table.names)
    columns = [table.column(name) for name in named] if named else list(table.columns)
    if isinstance(width, int) and len(columns) != width:
        raise InputError(
            f"{table.path} has {len(columns)} columns",
            why=f"the model takes {spec}; the file has {_join_names(table.names)}"
            if any(names)
            else f"the model takes {spec}",
            fix="remove columns that are no features, such as the label" if len(columns) > width else "",
        )
    parsed = [
        _parse_column(table, name, cells, spec.dtype) for name, cells in zip(names, columns, strict=True)
    ]
    return np.stack(parsed, axis=1)


def _read(path: Path) -> _Table:
    if limits.is_given("cell"):
        csv.field_size_limit(limits.limit("cell"))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            lines = [row for row in csv.reader(file, delimiter=_delimiter(head)) if row]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} cannot be read", why="it is not UTF-8", fix="save it as UTF-8") from error
    except (OSError, csv.Error) as error:
        fix = limits.advice("cell") if "field limit" in str(error) else ""
        raise InputError(f"{path} cannot be read", why=str(error), fix=fix) from error
    has_header = bool(lines) and not all(map(_is_number, lines[0]))
    names = tuple(name.strip() for name in lines[0]) if has_header else ("",) * len(lines[0] if lines else [])
    rows = lines[has_header:]
    if not rows:
        raise InputError(f"{path} has no rows", why="it is empty" if not lines else "it has a header only")
    odd = next((place for place, row in enumerate(rows) if len(row) != len(names)), None)
    if odd is not None:
        raise InputError(
            f"{path} has {len(rows[odd])} cells in row {odd}", why=f"the first line has {len(names)}"
        )
    return _Table(path, names, tuple(zip(*rows, strict=True)))


def _delimiter(head: str) -> str:
    return max(",;\t", key=head.count)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.strip() in _MISSING
    return True


def _parse_column(table: _Table, name: str, cells: Sequence[str], dtype: str) -> Array:
    """Parse the cells of a column: [N] of `dtype`."""
    if dtype == "string":
        texts = [_MISSING_TEXT if cell.strip() in _MISSING else cell for cell in cells]
        return np.array(texts, dtype=object)
    if dtype == "bool":
        return np.array([_cell(table, name, row, cell, _boolean, dtype) for row, cell in enumerate(cells)])
    filled = ["nan" if cell.strip() in _MISSING else cell for cell in cells]
    try:
        # NumPy pads all cells to the longest, so that one long cell would take the memory of a whole table of them.
        numbers = np.array(filled if max(map(len, filled)) <= _LONGEST else [*map(float, filled)])
        numbers = numbers.astype(np.float64)
    except ValueError:
        numbers = np.array(
            [_cell(table, name, row, cell, float, dtype) for row, cell in enumerate(filled)], np.float64
        )
    if np.dtype(dtype).kind == "f":
        with np.errstate(over="ignore"):  # the model gets infinities
            return numbers.astype(dtype)
    parse = partial(_integer, limits=np.iinfo(dtype))
    return np.array([_cell(table, name, row, cell, parse, dtype) for row, cell in enumerate(cells)], dtype)


def _integer(cell: str, limits: np.iinfo[Any]) -> int:
    try:
        whole = int(cell)
    except ValueError:
        number = float(cell)
        if not number.is_integer():
            raise
        whole = int(number)
    if not limits.min <= whole <= limits.max:
        raise OverflowError(cell)
    return whole


def _boolean(cell: str) -> bool:
    return _BOOLEANS[cell.strip().lower()]


def _cell(table: _Table, name: str, row: int, cell: str, parse: Any, dtype: str) -> Any:
    try:
        return parse(cell)
    except (ValueError, KeyError, OverflowError):
        content = "a missing value" if cell.strip() in _MISSING else repr(cell[:40])
        column = f"column {name!r}" if name else "a column"
        raise InputError(
            f"{table.path} has {content} in {column}, row {row}", why=f"the model takes {dtype} there"
        ) from None


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

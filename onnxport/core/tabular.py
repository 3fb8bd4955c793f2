"""Reports as Python programs use them: a dict, a table of pandas, a line in a prompt, a table in a notebook."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from onnxport.core.errors import MissingDependencyError, printable

if TYPE_CHECKING:
    import pandas

_SHOWN = 30  # rows of a notebook's table


class Documented:
    """A report that is a document."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `--json` prints, as dicts, lists, texts and numbers."""
        found: dict[str, Any] = json.loads(self.model_dump_json())  # type: ignore[attr-defined]
        return found


class Tabular(Documented):
    """A report with one table: its field `_table`, of which a notebook shows `_columns`."""

    _about: ClassVar[tuple[str, ...]] = ()
    _table: ClassVar[str]
    _columns: ClassVar[tuple[str, ...]]

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame; parts of parts are columns such as `latency.median`.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingDependencyError("pandas is not installed", fix="pip install pandas") from error
        return pandas.DataFrame(self._rows())

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """Show a line, not every figure."""
        yield from ((name, getattr(self, name)) for name in self._about)
        yield self._table, _Count(len(getattr(self, self._table)))

    def _repr_html_(self) -> str:
        """Return the table, which notebooks show."""
        rows = self._rows()
        columns = [name for name in self._columns if any(row.get(name) is not None for row in rows)]
        shown = [[_text(row.get(name)) for name in columns] for row in rows[:_SHOWN]]
        more = f"<p>{len(rows) - _SHOWN} more rows</p>" if len(rows) > _SHOWN else ""
        lines = [_line("td", row) for row in shown]
        return f"<table>{_line('th', columns)}{''.join(lines)}</table>{more}"

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows with numbers as they are, infinite ones included."""
        return [dict(_flat(each.model_dump())) for each in getattr(self, self._table)]


class _Count:
    """So many rows, in a repr."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return f"<{self._rows}>"


def _flat(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _line(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(printable(cell))}</{tag}>' for cell in cells)}</tr>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

"""What `debug` found, as lines of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxport.reports.run_report import RunReport
from onnxport.validate.report import Diagnosis, LayerFigure, NodeRef

_AROUND = 3  # values shown before and after the one at fault
_WORST = 5


def diagnosis_lines(run: RunReport, *, all_layers: bool = False) -> str:
    """The finding, what it rests on, and the figures of the values around it (of all with `all_layers`)."""
    found = run.artifacts[0].report.diagnosis
    assert found is not None, "debug always gives one"
    lines = [found.summary]
    rows = {
        "value": f"{found.node.value!r}, stage {found.node.stage}" if found.node else "",
        "one of": ", ".join(_named(ref) for ref in found.candidates),
        "inputs": found.input_set,
        "tapping": found.tapping,
        "repro": f"{found.repro}: see its README.md" if found.repro else "",
        "runs": f"{found.runs} of the candidate" if found.runs else "",
        **{f"note {number}": note for number, note in enumerate(found.notes, 1)},
    }
    lines += [
        f"  {name.partition(' ')[0] if 'note' in name else name:<9}{text}"
        for name, text in rows.items()
        if text
    ]
    return "\n".join([*lines, *_table(found, all_layers)])


def _table(found: Diagnosis, all_layers: bool) -> list[str]:
    shown = list(found.layers) if all_layers else _telling(found)
    if not shown:
        return []
    rows = [("value", "op", "max difference", "of scale", "SQNR dB", "local"), *map(_row, shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    left = len(found.layers) - len(shown)
    more = [f"  ... and {left} more values, all with --verbose"] if left else []
    return ["", *(f"  {'  '.join(_padded(row, widths))}".rstrip() for row in rows), *more]


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.ljust(width) if column < 2 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]


def _telling(found: Diagnosis) -> list[LayerFigure]:
    """The values around the one at fault, and the worst few, in the graph's order."""
    shown = set[int]()
    group = {ref.value for ref in (*found.candidates, found.node) if ref}
    at = [i for i, figure in enumerate(found.layers) if figure.node.value in group]
    if at:
        shown.update(range(max(at[-1] - _AROUND, 0), min(at[-1] + _AROUND + 1, len(found.layers))))
    shown.update(
        sorted(range(len(found.layers)), key=lambda i: _badness(found.layers[i]), reverse=True)[:_WORST]
    )
    return [found.layers[i] for i in sorted(shown)]


def _badness(figure: LayerFigure) -> tuple[float, float]:
    own = figure.local_sqnr_db if figure.local_share is None else None
    lost = figure.sqnr_db if own is None else own
    return figure.local_share or 0.0, -(math.inf if lost is None else lost)


def _row(figure: LayerFigure) -> tuple[str, ...]:
    return (
        figure.node.value,
        figure.node.op,
        f"{figure.max_abs:.1e}" if figure.max_abs else "0",
        f"{figure.max_abs / figure.scale:.1e}" if figure.scale and figure.max_abs else "",
        "-" if figure.sqnr_db is None else "exact" if math.isinf(figure.sqnr_db) else f"{figure.sqnr_db:.1f}",
        _local(figure),
    )


def _local(figure: LayerFigure) -> str:
    """The node alone: its share of what is allowed, or what it loses where nothing is at fault."""
    share, lost = figure.local_share, figure.local_sqnr_db
    if share is None:
        return "" if lost is None else "exact" if math.isinf(lost) else f"{lost:.1f} dB"
    return f"{share:.2g}" + (" <" if share > 1 else "")


def _named(ref: NodeRef) -> str:
    return f"{ref.op} {ref.name or ref.value!r}"

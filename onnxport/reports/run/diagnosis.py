"""The finding of `onnxport debug` as lines of text."""

from __future__ import annotations

import math

from onnxport.reports.run_report import RunReport
from onnxport.reports.wording import align
from onnxport.validate.report import Diagnosis, LayerFigure, NodeRef

_AROUND = 3  # values shown before and after the one at fault
_WORST = 5
_HEAD = ("value", "op", "max difference", "of scale", "SQNR dB", "local")


def diagnosis_lines(run: RunReport, *, all_layers: bool = False) -> str:
    """Return the finding, its evidence, and the figures of the values around it (of all with `all_layers`)."""
    found = run.artifacts[0].report.diagnosis
    assert found is not None, "debug always makes one"
    rows = [
        ("value", f"{found.node.value!r}, stage {found.node.stage}" if found.node else ""),
        ("one of", ", ".join(map(_node, found.candidates))),
        ("inputs", found.input_set),
        ("tapping", found.tapping),
        ("repro", f"{found.repro}: see its README.md" if found.repro else ""),
        ("runs", f"{found.runs} of the candidate" if found.runs else ""),
        *(("note", note) for note in found.notes),
    ]
    lines = [f"  {label:<9}{text}" for label, text in rows if text]
    return "\n".join([found.summary, *lines, *_table(found, all_layers)])


def _table(found: Diagnosis, all_layers: bool) -> list[str]:
    shown = list(found.layers) if all_layers else _relevant(found)
    if not shown:
        return []
    rows = [_HEAD, *map(_row, shown)]
    left = len(found.layers) - len(shown)
    more = [f"  ... and {left} more values, all with --verbose"] if left else []
    return ["", *(f"  {line}" for line in align(rows, left=2)), *more]


def _relevant(found: Diagnosis) -> list[LayerFigure]:
    """Return the values around the one at fault, and the worst few, in the graph's order."""
    at_fault = {ref.value for ref in (*found.candidates, found.node) if ref}
    places = [i for i, figure in enumerate(found.layers) if figure.node.value in at_fault]
    shown = set[int]()
    if places:
        last = places[-1]
        shown.update(range(max(last - _AROUND, 0), min(last + _AROUND + 1, len(found.layers))))
    by_badness = sorted(range(len(found.layers)), key=lambda i: _badness(found.layers[i]), reverse=True)
    shown.update(by_badness[:_WORST])
    return [found.layers[i] for i in sorted(shown)]


def _badness(figure: LayerFigure) -> tuple[float, float]:
    own = figure.local_sqnr_db if figure.local_share is None else None
    sqnr = figure.sqnr_db if own is None else own
    return figure.local_share or 0.0, -(math.inf if sqnr is None else sqnr)


def _row(figure: LayerFigure) -> tuple[str, ...]:
    return (
        figure.node.value,
        figure.node.op,
        f"{figure.max_abs:.1e}" if figure.max_abs else "0",
        f"{figure.max_abs / figure.scale:.1e}" if figure.scale and figure.max_abs else "",
        "-" if figure.sqnr_db is None else _sqnr(figure.sqnr_db, ""),
        _local(figure),
    )


def _local(figure: LayerFigure) -> str:
    """Return the node's own difference as a share of its tolerance; its own SQNR where it has no tolerance."""
    share, sqnr = figure.local_share, figure.local_sqnr_db
    if share is None:
        return "" if sqnr is None else _sqnr(sqnr, " dB")
    return f"{share:.2g}" + (" <" if share > 1 else "")


def _sqnr(value: float, unit: str) -> str:
    return "exact" if math.isinf(value) else f"{value:.1f}{unit}"


def _node(ref: NodeRef) -> str:
    return f"{ref.op} {ref.name or ref.value!r}"

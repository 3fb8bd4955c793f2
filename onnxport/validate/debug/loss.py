"""Where a lower precision loses most, for pairs that are asked for quality alone: no node is at fault there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from onnxport.validate.report import AUDITED, LayerFigure, NodeRef, Report

# A node that loses this much more than the next one is the one that loses most: twice the noise.
_APART = 3.0  # dB
_NAMED = 3

GENERATED = (
    "these inputs are generated ones: what lies outside the range that a model was quantized for is lost at its first "
    "nodes; --inputs DIR takes your own"
)


def is_lossy(report: Report) -> bool:
    """Whether what is to be found is where accuracy is lost, and not which node is at fault."""
    if report.verdict == "over budget":
        return True
    if any(judgement.against == AUDITED for judgement in report.judgements):
        return True  # one node loses more than its rounding explains: the one that loses most by itself
    asked = {judgement.question for judgement in report.judgements}
    return asked == {"quality"} and report.verdict != "not equivalent"


def ranking(layers: Sequence[LayerFigure]) -> list[LayerFigure]:
    """The values whose own nodes lose something, the one that loses most first."""
    lost = [each for each in layers if each.local_sqnr_db is not None and math.isfinite(each.local_sqnr_db)]
    return sorted(lost, key=_own)


def loses_most(ranked: Sequence[LayerFigure]) -> LayerFigure | None:
    """The value whose node loses clearly more than all others; None where none does."""
    if not ranked or (len(ranked) > 1 and _own(ranked[1]) - _own(ranked[0]) < _APART):
        return None
    return ranked[0]


def summary(ranked: Sequence[LayerFigure], node: Callable[[str], NodeRef]) -> str:
    """The first few in one sentence; `node` is what stands for all that make a value."""
    if not ranked:
        return "no accuracy is lost at the values that both show"
    names = [
        f"{ref.op} {(ref.name or ref.value)!r}" for ref in (node(each.node.value) for each in ranked[:_NAMED])
    ]
    own = [f"{_own(each):.1f} dB" for each in ranked[:_NAMED]]
    total = ranked[0].sqnr_db
    all_in_all = "" if total is None else f" ({total:.1f} dB with what was lost before it)"
    said = f"most accuracy is lost at {names[0]}: SQNR {own[0]} by itself{all_in_all}"
    if len(names) > 1:
        said += f"; then {', '.join(map(' '.join, zip(names[1:], own[1:], strict=True)))}"
    clear = "it loses most by far" if loses_most(ranked) else "no node loses much more than all others"
    return f"{said}; {clear}"


def _own(figure: LayerFigure) -> float:
    assert figure.local_sqnr_db is not None, "`ranking` takes those that have one"
    return figure.local_sqnr_db

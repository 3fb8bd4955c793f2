"""A diagnosis in words: the node at fault, or the nodes that lose most where only quality applies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import Artifact
from onnxport.validate.debug.local_error import LocalError
from onnxport.validate.debug.search import Trail
from onnxport.validate.report import AUDITED, RIGHT, LayerFigure, NodeRef, Report

STOPS = "it cannot run: "
NO_REPRO = (
    "no repro was written: the candidate gives no answer on these inputs to compare with the reference's"
)
AGREE = "the two agree: there is no fault to find"
SIZES = "the sizes that the candidate takes decide; with --shape, as below, the nodes are searched"
KEPT = "the candidate's quality is within its limits; --layers ranks the losses anyway"
PLAIN_KERNELS = "LiteRT shows intermediate values only without XNNPACK; the figures below are of such a run"
GENERATED = (
    "these inputs are generated: values beyond the calibrated range are clipped at the first nodes; "
    "give your own inputs with --inputs DIR"
)
_FIXED = "the candidate is right only while"

_MOST = 4  # names in a sentence
_RANKED = 3
# dB: a node that loses this much more than the next one loses most by far. It is twice the noise.
_APART = 3.0


def summarize_fault(node: NodeRef, group: Sequence[NodeRef], fault: LocalError) -> str:
    """Return the finding in one sentence."""
    name = _name(node, group)
    if fault.fault.startswith(STOPS):
        return f"the candidate stops at {name}: {fault.fault.removeprefix(STOPS)}"
    where = f"[{','.join(map(str, fault.index))}]" + (f" of {fault.value!r}" if len(group) > 1 else "")
    values = (
        f"{fault.given:.6g} at {where} where ONNX Runtime, on the same inputs to it, has {fault.expected:.6g}"
    )
    if np.isnan(fault.expected) and np.isnan(fault.given):
        values = fault.fault
    times = "" if not np.isfinite(fault.share) else f", {fault.share:.2g} times what rounding explains"
    return f"{name} is at fault: {values}{times}"


def _name(node: NodeRef, group: Sequence[NodeRef]) -> str:
    """Return the node's name with the nodes that cannot be separated from it."""
    name = f"{node.op} {node.name!r}" if node.name else f"the {node.op} that gives {node.value!r}"
    others = [ref for ref in group if ref != node]
    if not others:
        return name
    ops = ", ".join(ref.op for ref in others[:_MOST])
    more = f" and {len(others) - _MOST} more" if len(others) > _MOST else ""
    return f"{name} (or {ops}{more}, which the candidate fuses with it)"


def summarize_no_fault(trail: Trail, tapping: str, report: Report) -> str:
    """Return why no node is named although the candidate did not pass."""
    if not report.outputs:
        return f"no node is at fault on the inputs that the candidate takes; {report.reason}"
    if tapping.startswith(_FIXED):
        return "the difference is gone when intermediate values are shown, so no node can be named"
    shares = [figure.local_share for figure in trail.layers.values() if figure.local_share is not None]
    most = f" (the largest error is {max(shares):.2g} of what is allowed)" if shares else ""
    return f"no single node is at fault: each gives what ONNX Runtime gives on the same inputs{most}"


def describe_tapping(
    moved: Sequence[str], alone: Mapping[str, Array], tapped: Mapping[str, Array], *, fixed: bool
) -> str:
    """Return what showing intermediate values changes."""
    if fixed:
        return (
            f"{_FIXED} its intermediate values are shown: the fault is in nodes that its runtime otherwise fuses "
            "or delegates"
        )
    name = max(moved, key=lambda name: max_difference(alone[name], tapped[name]))
    by = max_difference(alone[name], tapped[name])
    return f"showing intermediate values moves {name!r} by {by:.1e}"


def describe_plain_reference(name: str, moved: float) -> str:
    """Return a note on figures that mostly come from how the reference runs here."""
    return (
        f"the figures are against the reference with each node run alone, which moves {name!r} by {moved:.1e}; "
        "the verdict is against the reference as ONNX Runtime optimizes it"
    )


def max_difference(one: Array, other: Array) -> float:
    """Return the largest absolute difference; infinite where the two cannot be subtracted."""
    if one.shape != other.shape or one.dtype.kind not in "fiub":
        return float("inf")
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(one.astype(np.float64) - other.astype(np.float64)), initial=0.0))


def describe_others(values: Sequence[str]) -> str:
    """Return a note on further nodes at fault: one mistake of a converter affects all nodes of a kind."""
    names = ", ".join(map(repr, values[:_MOST]))
    more = f" and {len(values) - _MOST} more" if len(values) > _MOST else ""
    return f"other nodes are at fault too: those of the values {names}{more}"


def describe_confirmation(showing: Sequence[str], others: Sequence[str]) -> str:
    """Return on which other inputs the node is at fault."""
    if not showing:
        return f"the fault does not show on {', '.join(others)}"
    besides = f", not on {', '.join(others)}" if others else ""
    return f"the fault also shows on {', '.join(showing)}{besides}"


def describe_no_taps(candidate: Artifact, report: Report) -> str:
    """Return why no node can be named in a file that shows no intermediate values."""
    wrong = [repr(each.name) for each in report.outputs if each.verdict == "not equivalent"]
    right = [repr(each.name) for each in report.outputs if each.verdict in RIGHT]
    parts = [
        f"{', '.join(names)} {verb}{'s' if len(names) == 1 else ''}"
        for names, verb in ((wrong, "differ"), (right, "agree"))
        if names
    ]
    outputs = f": {', '.join(parts)}" if wrong else ""
    return (
        f"no node can be named: {candidate.path.name} does not map its tensors to ONNX values, so only its outputs "
        f"were compared{outputs}"
    )


def describe_untried(found: Mapping[str, str]) -> str:
    """Return a note on values that could not be checked."""
    name, why = next(iter(found.items()))
    more = f" and {len(found) - 1} more values" if len(found) > 1 else ""
    return f"{name!r}{more} could not be computed from the candidate's values: {why[:160]}"


def is_lossy(report: Report) -> bool:
    """Return whether to look for lost accuracy, and not for a node at fault."""
    if report.verdict == "over budget":
        return True
    if any(judgement.against == AUDITED for judgement in report.judgements):
        return True  # one node loses more than its rounding explains: the one that loses most by itself
    criteria = {judgement.question for judgement in report.judgements}
    return criteria == {"quality"} and report.verdict != "not equivalent"


def rank_losses(layers: Sequence[LayerFigure]) -> list[LayerFigure]:
    """Return the values whose own nodes lose accuracy, the largest loss first."""
    lost = [each for each in layers if each.local_sqnr_db is not None and math.isfinite(each.local_sqnr_db)]
    return sorted(lost, key=_own_sqnr)


def largest_loss(ranked: Sequence[LayerFigure]) -> LayerFigure | None:
    """Return the value whose node loses clearly more than all others; None for none."""
    if not ranked or (len(ranked) > 1 and _own_sqnr(ranked[1]) - _own_sqnr(ranked[0]) < _APART):
        return None
    return ranked[0]


def summarize_losses(ranked: Sequence[LayerFigure], node: Callable[[str], NodeRef]) -> str:
    """Return the largest losses in one sentence; `node` maps a value to the node that stands for its group."""
    if not ranked:
        return "no accuracy is lost at the values that both show"
    nodes = (node(each.node.value) for each in ranked[:_RANKED])
    names = [f"{ref.op} {(ref.name or ref.value)!r}" for ref in nodes]
    own = [f"{_own_sqnr(each):.1f} dB" for each in ranked[:_RANKED]]
    total = ranked[0].sqnr_db
    all_losses = "" if total is None else f" ({total:.1f} dB with the losses before it)"
    text = f"most accuracy is lost at {names[0]}: SQNR {own[0]} by itself{all_losses}"
    if len(names) > 1:
        text += f"; then {', '.join(map(' '.join, zip(names[1:], own[1:], strict=True)))}"
    clear = "it loses most by far" if largest_loss(ranked) else "no node loses much more than all others"
    return f"{text}; {clear}"


def _own_sqnr(figure: LayerFigure) -> float:
    assert figure.local_sqnr_db is not None, "`rank_losses` selects those that have one"
    return figure.local_sqnr_db

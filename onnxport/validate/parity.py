"""Evidence where rounding alone drowns an output: how far two sides are from a third that does not round.

Integers are chaotic in deep networks. An activation that rounds the other way moves the next layer's by less than a
step, which has some of them round the other way, each by a whole one; after ten layers two right implementations of one
quantized model are as far apart as either is from the float original. Their distances from the original are alike all
the same: both are what rounding costs. A fault adds its own power to that of the candidate.
"""

from __future__ import annotations

import math

from onnxport.validate.fidelity import worst_of
from onnxport.validate.report import RIGHT, Judgement, OutputReport

# Twice the error's power. ONNX Runtime's optimization levels are up to 2 dB apart on single photos (MobileNetV2, int8).
ALLOWED = 3.0


def settled(fidelity: Judgement, candidate: Judgement, lowered: Judgement) -> Judgement:
    """`fidelity` with the doubts settled that the float original settles.

    Args:
        fidelity: the candidate held to the lowered model.
        candidate, lowered: what either lost against the float original, on the same inputs.

    Returns:
        An output without a fault that was inconclusive is proven where the candidate lost no more than the lowered
        model itself; faults stay faults, and what the original's own answers do not show stays inconclusive.
    """
    lost = {each.name: each for each in candidate.outputs}
    own = {each.name: each for each in lowered.outputs}
    outputs = tuple(_settled(each, lost.get(each.name), own.get(each.name)) for each in fidelity.outputs)
    if not outputs:
        return fidelity
    verdict, reason = worst_of(outputs)
    return fidelity.model_copy(update={"outputs": outputs, "verdict": verdict, "reason": reason})


def _settled(held: OutputReport, lost: OutputReport | None, own: OutputReport | None) -> OutputReport:
    if held.verdict != "inconclusive" or held.mismatches or lost is None or own is None:
        return held
    if lost.verdict not in RIGHT or own.verdict not in RIGHT or not held.dtype.startswith("float"):
        return held
    ours, theirs = _decibels(lost), _decibels(own)
    if ours < theirs - ALLOWED:
        return held
    rule = f"{held.rule}, but it loses what the quantized model loses: {ours:.1f} dB, {theirs:.1f} dB"
    if not held.difference:
        rule = "exact"
    return held.model_copy(update={"verdict": "proven", "rule": rule})


def _decibels(output: OutputReport) -> float:
    return math.inf if output.sqnr_db is None else output.sqnr_db

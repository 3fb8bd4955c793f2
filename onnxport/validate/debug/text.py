"""A diagnosis in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.formats.artifact import Artifact
from onnxport.validate.debug.local_error import Local
from onnxport.validate.debug.search import Trail
from onnxport.validate.report import RIGHT, NodeRef, Report

STOPS = "it cannot run: "
NO_REPRO = "no repro was written: on these inputs the candidate gives no answer to put beside the reference's"
AGREE = "the two agree, there is nothing to look for"
KEPT = "the candidate keeps what was asked of its quality, there is nothing to look for; --layers ranks what is lost"
PLAIN_KERNELS = "LiteRT shows values without XNNPACK only, and the figures below are of such a run"


def summary(node: NodeRef, group: Sequence[NodeRef], fault: Local) -> str:
    """The finding in one sentence."""
    if fault.fault.startswith(STOPS):
        return f"{called(node, group)} is where the candidate stops: {fault.fault.removeprefix(STOPS)}"
    where = f"[{','.join(map(str, fault.index))}]" + (f" of {fault.value!r}" if len(group) > 1 else "")
    said = (
        f"{fault.given:.6g} at {where} where ONNX Runtime, on the same inputs to it, has {fault.expected:.6g}"
    )
    if np.isnan(fault.expected) and np.isnan(fault.given):
        said = fault.fault.removeprefix("a fault: ")
    much = "" if not np.isfinite(fault.share) else f", {fault.share:.2g} times what rounding explains"
    return f"{called(node, group)} is at fault: {said}{much}"


def called(node: NodeRef, group: Sequence[NodeRef]) -> str:
    """The node and those that cannot be told from it."""
    name = f"{node.op} {node.name!r}" if node.name else f"the {node.op} that gives {node.value!r}"
    others = [ref for ref in group if ref != node]
    if not others:
        return name
    ops = ", ".join(ref.op for ref in others[:_MOST])
    more = f" and {len(others) - _MOST} more" if len(others) > _MOST else ""
    return f"{name} (or {ops}{more}, which the candidate joins with it)"


_MOST = 4


def nothing(trail: Trail, tapping: str, report: Report) -> str:
    """Why no node is named though the candidate did not pass."""
    if not report.outputs:
        return f"no node is at fault on the inputs that the candidate takes; {report.reason}"
    if tapping.startswith(MENDED):
        return "the difference is gone when intermediate values are shown, so no node can be named"
    shares = [figure.local_share for figure in trail.layers.values() if figure.local_share is not None]
    most = f" (the furthest is at {max(shares):.2g} of what is allowed)" if shares else ""
    return f"no single node is at fault: each gives what ONNX Runtime gives on the same inputs{most}"


MENDED = "the candidate is right when"


def tapping(
    moved: Sequence[str], alone: Mapping[str, Array], tapped: Mapping[str, Array], *, mended: bool
) -> str:
    """What showing intermediate values changed."""
    if mended:
        return (
            f"{MENDED} its intermediate values are shown, and wrong when they are not: the fault lies in what its "
            "runtime only then fuses or delegates"
        )
    furthest = max(moved, key=lambda name: difference(alone[name], tapped[name]))
    by = difference(alone[furthest], tapped[furthest])
    return f"showing intermediate values moves {furthest!r} by {by:.1e}"


def plain_reference(name: str, moved: float) -> str:
    """What the figures are against, where that makes most of them."""
    return (
        f"the figures are against the reference with each node run by itself, which moves {name!r} by {moved:.1e}; "
        "the verdict is against it as ONNX Runtime optimizes it"
    )


def difference(one: Array, other: Array) -> float:
    if one.shape != other.shape or one.dtype.kind not in "fiub":
        return float("inf")
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(np.abs(one.astype(np.float64) - other.astype(np.float64)), initial=0.0))


def others(values: Sequence[str]) -> str:
    """What is wrong besides: constants are shared, and one mistake of a converter hits all nodes of a kind."""
    names = ", ".join(map(repr, values[:_MOST]))
    more = f" and {len(values) - _MOST} more" if len(values) > _MOST else ""
    return f"it is not alone: the nodes that give {names}{more} are at fault by themselves, too"


def confirmed(showing: Sequence[str], others: Sequence[str]) -> str:
    """On which other inputs the node is at fault."""
    said = [f"it shows on {', '.join(showing)} too"] if showing else []
    said += [f"not on {', '.join(others)}"] if others else []
    return ", ".join(said) if showing else f"it does not show on {', '.join(others)}"


def no_taps(candidate: Artifact, report: Report) -> str:
    """Why nothing can be named in a file that shows no intermediate values."""
    wrong = [repr(each.name) for each in report.outputs if each.verdict == "not equivalent"]
    right = [repr(each.name) for each in report.outputs if each.verdict in RIGHT]
    parts = [
        f"{', '.join(names)} {verb}{'s' if len(names) == 1 else ''}"
        for names, verb in ((wrong, "differ"), (right, "agree"))
        if names
    ]
    outputs = f": {', '.join(parts)}" if wrong else ""
    return (
        f"no node can be named: {candidate.path.name} does not say which of its tensors are ONNX values, so only "
        f"its outputs were compared{outputs}"
    )


def untried(found: Mapping[str, str]) -> str:
    """What could not be looked at."""
    name, why = next(iter(found.items()))
    more = f" and {len(found) - 1} more values" if len(found) > 1 else ""
    return f"{name!r}{more} could not be computed from the candidate's values: {why[:160]}"

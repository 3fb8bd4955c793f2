"""What runtimes have in common that are asked by way of our own conversion of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from onnxport.deployment.record import Change, Fallback, Placement
from onnxport.errors import CannotConvertError, OnnxportError
from onnxport.model import Model
from onnxport.shapes import GivenShape

# Asks about the model with these sizes for open dimensions.
Ask = Callable[[Mapping[str, GivenShape]], Placement]


def refused(path: Path, placement: Placement, error: CannotConvertError) -> Placement:
    """`placement` of a model that our converter refuses: there is no product to ask about."""
    nodes = node_count(Model.load(path))
    fallbacks = tuple(Fallback(op=each.op, node=each.node, why=each.why) for each in error.refusals)
    return placement.model_copy(
        update={
            "extent": "none",
            "nodes": nodes,
            "taken": max(nodes - len(fallbacks), 0) if fallbacks else 0,
            "partitions": None,
            "fallbacks": fallbacks,
            "why": "" if fallbacks else "; ".join(part for part in (error.what, error.why) if part),
        }
    )


def node_count(model: Model) -> int:
    """Nodes but for constants, those in bodies included."""
    return sum(1 for node in model.graph.all_nodes() if node.op_type != "Constant")


def with_change(path: Path, target: str, size: int, ask: Ask) -> Placement:
    """What `ask` says of the model, and whether fixed sizes would change that: then it is asked again, with `size`.

    Args:
        target: the word of `--to`.
    """
    answer = ask({})
    if answer.extent == "all" or path.suffix != ".onnx":
        return answer
    fixed = _fixed(Model.load(path), size)
    if not fixed:
        return answer
    try:
        better = ask(fixed)
    except OnnxportError:  # sizes that do not fit the model
        return answer
    mends = _missed(answer) - _missed(better)
    if mends <= 0 or better.extent not in ("all", "part"):
        return answer
    given = " ".join(f"--shape {name}={','.join(map(str, sizes))}" for name, sizes in fixed.items())
    change = Change(
        said="fixing the open sizes",
        command=f"onnxport convert {path.name} --to {target} {given}",
        mends=mends,
    )
    return answer.model_copy(update={"change": change})


def _fixed(model: Model, size: int) -> dict[str, GivenShape]:
    """The inputs with open dimensions, all of these as `size`, but one for the first, which is most often the batch."""
    return {
        spec.name: tuple(
            dim if isinstance(dim, int) else 1 if axis == 0 else size for axis, dim in enumerate(spec.shape)
        )
        for spec in model.inputs
        if not spec.is_static
    }


def _missed(placement: Placement) -> int:
    return placement.nodes - placement.taken if placement.extent != "none" else placement.nodes

"""The form in which every converter takes a model: one opset, no functions, fresh shapes, folded constants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from onnx_ir.passes import PassBase, common

from onnxport.core.errors import CannotConvertError
from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference as shape_passes
from onnxport.optimizers.constant_branches import inline_known_branches
from onnxport.optimizers.constant_folding import fold_constants
from onnxport.optimizers.dead_branches import drop_impossible_branches
from onnxport.optimizers.decomposition import decompose
from onnxport.optimizers.gelu_fusion import fuse_gelu
from onnxport.optimizers.loop_unrolling import unroll_changing_loops
from onnxport.optimizers.opset import inline_functions, lift
from onnxport.optimizers.qdq import settle_quantization
from onnxport.optimizers.scan_to_loop import scans_to_loops
from onnxport.optimizers.sequences import resolve_sequences

# Every round resolves the shapes behind one more layer of shape arithmetic; real models need two or three.
_MAX_ROUNDS = 20


class Equivalence(Protocol):
    """What the pipeline injects to check a pass: the optimizers do not know the judge."""

    def __call__(self, candidate: Model) -> str | None:
        """Why `candidate` does not compute what the original does; None if it does."""
        ...


@dataclass(frozen=True)
class Pass:
    """One rewriting step: changes the model in place. A pass that is not `optional` is never skipped."""

    name: str
    run: Callable[[Model], None]
    optional: bool = True


@dataclass(frozen=True)
class Prepared:
    """The prepared model, and what the report should say of its making."""

    model: Model
    notes: tuple[str, ...] = ()


def prepare(
    model: Model,
    *,
    shapes: Mapping[str, GivenShape],
    native: Callable[[], Collection[str]],
    equivalence: Equivalence | None = None,
    unrolls: bool = False,
) -> Prepared:
    """Brings a copy of `model` into canonical form; the weights are shared with the original.

    Args:
        shapes: sizes for open input dimensions (--shape).
        native: gives the operators that the target holds, asked late, since a compiler may still be starting;
            others are decomposed where ONNX defines how.
        unrolls: whether loops of few steps are written out where what they carry changes its shape.
        equivalence: checks the result; when it differs, every pass is checked and a culprit skipped.

    Raises:
        UsageError: `shapes` do not fit the model.
        CannotConvertError: nodes that have no form in the canonical opset, or a required pass that changes
            the model's answers.
    """
    passes = _passes(shapes, native, unrolls=unrolls)
    candidate = model.clone()
    for step in passes:
        step.run(candidate)
    if equivalence is None or equivalence(candidate) is None:
        return Prepared(candidate)
    return _without_culprits(model, passes, equivalence)


def _passes(
    shapes: Mapping[str, GivenShape], native: Callable[[], Collection[str]], *, unrolls: bool
) -> list[Pass]:
    """The order matters: folding and some lifts need shapes."""
    return [
        Pass("fix input shapes", lambda model: shape_passes.pin_inputs(model, shapes), optional=False),
        Pass("inline functions", _inline, optional=False),
        Pass("infer shapes and fold constants", _restate_shapes, optional=False),
        Pass("lift opset", _lift, optional=False),
        Pass("rewrite Scan as Loop", _rewrite_scans),
        *([Pass("unroll loops", _unroll)] if unrolls else []),
        Pass("drop impossible branches", _drop_branches),
        Pass("resolve sequences", _resolve_sequences, optional=False),
        Pass("eliminate identities", _eliminate_identities),
        Pass("fuse Gelu", fuse_gelu),
        Pass("decompose", lambda model: _decompose(model, native())),
        Pass("settle quantization", _settle_quantization),
        Pass("remove unused", lambda model: _run(model, common.RemoveUnusedNodesPass())),
    ]


def _without_culprits(model: Model, passes: list[Pass], equivalence: Equivalence) -> Prepared:
    """Runs the passes one by one, skipping those that change the answers."""
    current, notes = model.clone(), []
    for step in passes:
        attempt = current.clone()
        step.run(attempt)
        reason = equivalence(attempt)
        if reason is None:
            current = attempt
        elif step.optional:
            notes.append(f"pass {step.name!r} was skipped, it changes the model's answers: {reason}")
        else:
            raise CannotConvertError(
                f"preparing the model changes its answers in the step {step.name!r}",
                why=reason,
                fix="please report this model",
            )
    return Prepared(current, tuple(notes))


def _run(model: Model, step: PassBase) -> None:
    step(model.ir)


def _inline(model: Model) -> None:
    inline_functions(model.ir)
    # Constants as initializers, which are constants and no inputs: one form for everything after.
    _run(model, common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0))
    _run(model, common.RemoveInitializersFromInputsPass())


def _lift(model: Model) -> None:
    if lift(model.ir):
        _run(model, common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0))
        shape_passes.infer(model)
        _fold(model)


def _drop_branches(model: Model) -> None:
    drop_impossible_branches(model, _refresh)


def _refresh(model: Model) -> None:
    shape_passes.infer(model)
    _fold(model)


def _rewrite_scans(model: Model) -> None:
    if scans_to_loops(model):
        _refresh(model)


def _unroll(model: Model) -> None:
    while unroll_changing_loops(model):
        _refresh(model)


def _restate_shapes(model: Model) -> None:
    shape_passes.drop_declared(model)
    shape_passes.infer(model)
    _fold(model)


def _fold(model: Model) -> None:
    for _ in range(_MAX_ROUNDS):
        if not fold_constants(model) + inline_known_branches(model) or not shape_passes.infer(model):
            return


def _resolve_sequences(model: Model) -> None:
    while resolve_sequences(model):
        shape_passes.infer(model)
        _fold(model)


def _eliminate_identities(model: Model) -> None:
    """Takes out Identity nodes whose result is no output.

    onnx-ir's own pass also renames what is behind an output, which loses one of two outputs that are the same
    value, and makes a branch return a value of the graph around it, which ONNX does not allow.
    """
    for node in list(model.graph.all_nodes()):
        source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        if (
            node.op_type == "Identity"
            and node.domain == ""
            and source is not None
            and not result.is_graph_output()
        ):
            result.replace_all_uses_with(source)
            assert node.graph is not None
            node.graph.remove(node, safe=True)


def _settle_quantization(model: Model) -> None:
    settle_quantization(model)
    _fold(model)


def _decompose(model: Model, native: Collection[str]) -> None:
    while decompose(model, native):
        shape_passes.infer(model)
        _fold(model)

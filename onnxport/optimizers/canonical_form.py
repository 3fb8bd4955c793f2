"""The form in which every converter takes a model: one opset, no functions, fresh shapes, folded constants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from onnx_ir.passes import common

from onnxport.formats.input_shapes import GivenShape
from onnxport.formats.model import Model
from onnxport.optimizers import shape_inference
from onnxport.optimizers.branch_ranks import equalize_ranks
from onnxport.optimizers.branches import drop_impossible_branches, inline_known_branches
from onnxport.optimizers.constant_folding import fold_constants
from onnxport.optimizers.decomposition import decompose
from onnxport.optimizers.dynamic_quantization import take_out_dynamic_quantization
from onnxport.optimizers.empty_operands import drop_all_empty_operands
from onnxport.optimizers.gelu_fusion import fuse_gelu
from onnxport.optimizers.loop_constants import capture_constants
from onnxport.optimizers.loop_unrolling import peel_loops, unroll_changing_loops
from onnxport.optimizers.opset import inline_functions, lift
from onnxport.optimizers.pad_fusion import fuse_pads
from onnxport.optimizers.passes import Equivalence, Pass, PassManager, Rewritten
from onnxport.optimizers.patterns import is_op, keeps_shape
from onnxport.optimizers.qdq import canonicalize_quantization
from onnxport.optimizers.rewrites.ml.trees import describe_rounding
from onnxport.optimizers.scan_to_loop import scans_to_loops
from onnxport.optimizers.sequences import resolve_sequences
from onnxport.optimizers.squeezes import name_squeezed_axes, read_output_ranks
from onnxport.optimizers.stored_weights import write_dequantization
from onnxport.optimizers.text_labels import number_texts

# Every round resolves the shapes behind one more layer of shape arithmetic; real models need two or three.
_MAX_ROUNDS = 20

_NUMBERED = "{!r} gives the number of a text: {}; the artefact's metadata has them"
_LISTED = 8  # texts in a note


def _write_list(texts: Sequence[str]) -> str:
    named = [f"{i} {text}" for i, text in enumerate(texts[:_LISTED])]
    return ", ".join([*named, "..."] if len(texts) > _LISTED else named)


@dataclass
class _Notes:
    """Passes that have something to report, and what it was in the last attempt.

    Attributes:
        ranks: of the outputs, as the file declares them.
    """

    ranks: Mapping[str, int]
    squeezes: Sequence[str] = ()
    trees: Sequence[str] = ()
    texts: Sequence[str] = ()

    def name_axes(self, model: Model) -> None:
        self.squeezes = name_squeezed_axes(model, self.ranks)
        if self.squeezes:
            _infer_and_fold(model)

    def describe_trees(self, model: Model) -> None:
        self.trees = describe_rounding(model.graph)

    def number_texts(self, model: Model) -> None:
        self.texts = [
            _NUMBERED.format(name, _write_list(texts)) for name, texts in number_texts(model).items()
        ]


def prepare(
    model: Model,
    *,
    shapes: Mapping[str, GivenShape],
    native: Callable[[], Collection[str]],
    equivalence: Equivalence | None = None,
    unrolls: bool = False,
    keeps_stored: bool = False,
    keeps_dynamic: bool = False,
) -> Rewritten:
    """Return a copy of `model` in canonical form; the weights are shared with the original.

    Args:
        shapes: sizes for open input dimensions (--shape).
        native: returns the operators that the target has; the others are decomposed where ONNX defines how. Called
            late: a compiler may still be starting.
        equivalence: checks the result; when it differs, every pass is checked and a culprit is skipped.
        unrolls: unroll loops of few steps whose state changes its shape.
        keeps_stored: write weights of 8 bits behind Cast and Mul as DequantizeLinear, which is not folded.
        keeps_dynamic: keep run-time quantization; the operators that the target lacks are decomposed exactly.

    Raises:
        UsageError: `shapes` do not fit the model.
        CannotConvertError: a node has no form in the canonical opset, or a required pass changes the answers.
    """
    manager, notes = PassManager(equivalence), _Notes(read_output_ranks(model))
    passes = _passes(
        shapes, native, notes, unrolls=unrolls, keeps_stored=keeps_stored, keeps_dynamic=keeps_dynamic
    )

    def attempt() -> Model:
        candidate = model.clone()
        for each in passes:
            if each.name not in manager.culprits:
                each.run(candidate)
                manager.prove(candidate, each)
        manager.prove(candidate)
        return candidate

    return Rewritten(manager.run(attempt), (*manager.notes, *notes.squeezes, *notes.trees, *notes.texts))


def _passes(
    shapes: Mapping[str, GivenShape],
    native: Callable[[], Collection[str]],
    notes: _Notes,
    *,
    unrolls: bool,
    keeps_stored: bool,
    keeps_dynamic: bool,
) -> list[Pass[Model]]:
    """List the passes in their order: folding and some lifts need shapes."""
    return [
        Pass("fix input shapes", lambda model: shape_inference.pin_inputs(model, shapes), optional=False),
        Pass("inline functions", _inline_functions, optional=False),
        *([Pass("write dequantization", write_dequantization)] if keeps_stored else []),
        Pass("infer shapes and fold constants", _infer_afresh, optional=False),
        Pass("lift opset", _lift, optional=False),
        Pass("name squeezed axes", notes.name_axes),
        *(
            []
            if keeps_dynamic
            else [Pass("take out dynamic quantization", _take_out_dynamic_quantization, optional=False)]
        ),
        Pass("rewrite Scan as Loop", _rewrite_scans),
        *([Pass("unroll loops", lambda model: _repeat(model, unroll_changing_loops))] if unrolls else []),
        Pass("capture constants of loops", capture_constants),
        Pass("peel loops", _peel_loops),
        Pass("drop impossible branches", lambda model: drop_impossible_branches(model, _infer_and_fold)),
        Pass("equalize ranks of branches", _equalize_ranks),
        Pass("resolve sequences", lambda model: _repeat(model, resolve_sequences), optional=False),
        Pass("drop empty operands", drop_all_empty_operands),
        Pass("eliminate identities", _eliminate_identities),
        Pass("fuse Gelu", fuse_gelu),
        Pass("fuse pads", fuse_pads),
        Pass("describe trees", notes.describe_trees),
        Pass("decompose", lambda model: _repeat(model, partial(decompose, native=native()))),
        Pass("canonicalize quantization", _canonicalize_quantization),
        Pass("number texts", notes.number_texts, optional=False),
        Pass("remove unused", lambda model: common.RemoveUnusedNodesPass()(model.ir)),
    ]


def _repeat(model: Model, rewriting: Callable[[Model], object]) -> None:
    """Apply a rewriting until it changes nothing, with fresh shapes and folded constants after each time."""
    while rewriting(model):
        _infer_and_fold(model)


def _inline_functions(model: Model) -> None:
    """Inline the model's functions; constants become initializers that are no inputs."""
    inline_functions(model.ir)
    _lift_constants(model)
    common.RemoveInitializersFromInputsPass()(model.ir)


def _lift_constants(model: Model) -> None:
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model.ir)


def without_impossible_branches(model: Model) -> tuple[Model, int]:
    """Return a folded copy with each If replaced by the only branch that can run, and how many these are.

    Where there is none, the model itself is returned: which branch runs shows only in folded constants.
    """
    if not any(node.op_type == "If" and not node.domain for node in model.graph.all_nodes()):
        return model, 0
    trial = model.clone()
    _infer_and_fold(trial)
    dropped = drop_impossible_branches(trial, _infer_and_fold)
    if not dropped:
        return model, 0
    common.RemoveUnusedNodesPass()(trial.ir)
    return trial, dropped


def _infer_afresh(model: Model) -> None:
    shape_inference.drop_declared(model)
    _infer_and_fold(model)


def _infer_and_fold(model: Model) -> None:
    shape_inference.infer(model)
    _fold(model)


def _fold(model: Model) -> None:
    for _ in range(_MAX_ROUNDS):
        if not fold_constants(model) + inline_known_branches(model) or not shape_inference.infer(model):
            return


def _take_out_dynamic_quantization(model: Model) -> None:
    has_inner_graphs = next(model.graph.subgraphs(), None) is not None
    # The shapes of what a loop's body makes may take a second round.
    if take_out_dynamic_quantization(model) or has_inner_graphs:
        _infer_and_fold(model)


def _lift(model: Model) -> None:
    if lift(model.ir):
        _lift_constants(model)
        _infer_and_fold(model)


def _rewrite_scans(model: Model) -> None:
    if scans_to_loops(model):
        _infer_and_fold(model)


def _equalize_ranks(model: Model) -> None:
    while equalize_ranks(model, _infer_and_fold):
        pass


def _peel_loops(model: Model) -> None:
    if peel_loops(model):
        _infer_and_fold(model)


def _canonicalize_quantization(model: Model) -> None:
    canonicalize_quantization(model)
    _fold(model)


def _eliminate_identities(model: Model) -> None:
    """Remove Identity, and Reshape to the same shape, whose result is no graph output.

    onnx-ir's own pass also removes those, which loses one of two outputs of the same value, and makes a branch
    return a value of an outer graph, which ONNX does not allow.
    """
    for node in list(model.graph.all_nodes()):
        source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        is_identity = is_op(node, "Identity") or (is_op(node, "Reshape") and keeps_shape(node))
        if is_identity and source is not None and not result.is_graph_output():
            result.replace_all_uses_with(source)
            assert node.graph is not None
            node.graph.remove(node, safe=True)

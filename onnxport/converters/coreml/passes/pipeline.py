"""The list of passes between the lowering and the package; each runs only if the program has the operators it needs.

coremltools runs 95 passes and validates the program after each; these are the ones that change our programs. For conv
and batch_norm we have a pass of our own (scale_fusion.py), which is faster and rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

from onnxport.converters.coreml.library import PASS_REGISTRY
from onnxport.converters.coreml.lower import Lowered
from onnxport.converters.coreml.passes.constant_deduplication import share_weights
from onnxport.converters.coreml.passes.scale_fusion import fold_affine
from onnxport.converters.coreml.passes.taps import TapTracker

_ANY = frozenset(("",))  # no condition


@dataclass(frozen=True)
class Pass:
    """One pass.

    Attributes:
        name: coremltools' name, or ours.
        needs: operators, one of which a program must have.
        count: the least number of them.
        moves: whether operators keep their variables but compute something else in them.
        run: our own pass; coremltools' pass of that name if None.
    """

    name: str
    needs: Set[str] = _ANY
    count: int = 1
    moves: bool = False
    run: Callable[[Any, TapTracker], None] | None = None


PASSES: tuple[Pass, ...] = (
    Pass("noop_elimination"),
    Pass("cast_optimization", {"cast"}),
    Pass("const_elimination"),
    Pass("fold_affine", {"batch_norm", "mul", "add", "sub", "real_div"}, run=fold_affine),
    Pass("fuse_matmul_weight_bias", {"matmul"}),
    Pass("fuse_linear_bias", {"linear"}),
    Pass("fuse_gelu_tanh_approximation", {"tanh"}),
    Pass("fuse_gelu_exact", {"erf"}),
    Pass("fuse_leaky_relu", {"maximum"}),
    Pass("fuse_squeeze_expand_dims", {"squeeze", "expand_dims"}, 2),
    Pass("merge_consecutive_paddings", {"pad"}, 2),
    Pass("fuse_layernorm_or_instancenorm", {"reduce_mean"}, 2),
    Pass("fuse_reduce_mean", {"reduce_sum"}),
    Pass("fuse_prelu", {"relu"}, 2),
    Pass("prelu_to_lrelu", {"prelu"}),
    Pass("merge_consecutive_relus", {"relu"}, 2),
    Pass("merge_consecutive_reshapes", {"reshape"}, 2),
    Pass("merge_consecutive_transposes", {"transpose"}, 2),
    Pass("fuse_transpose_matmul", {"transpose"}),
    Pass("reduce_transposes", {"transpose"}, 2, moves=True),
    Pass("loop_invariant_elimination", {"while_loop"}),
    Pass("remove_redundant_ops"),
    Pass("noop_elimination"),
    Pass("const_elimination"),
    Pass("dead_code_elimination"),
    Pass("dedup_op_and_var_names"),
)


def optimize(lowered: Lowered) -> Lowered:
    """Run the passes on the program in place; `taps` of the result are the ONNX values that remain."""
    program = lowered.program
    taps = TapTracker(program.functions["main"], lowered.taps)
    for each in PASSES:
        found = (operation.op_type in each.needs for operation in operations_of(program))
        if each.needs is not _ANY and sum(found) < each.count:
            continue
        if each.run is not None:
            each.run(program, taps)
            continue
        before = taps.axis_orders() if each.moves else None
        PASS_REGISTRY[f"common::{each.name}"](program)
        if before is not None:
            taps.keep_unmoved(before)
    share_weights(operations_of(program))
    return replace(lowered, taps=taps.taps())


def operations_of(program: Any) -> Iterator[Any]:
    """Yield every operator of a program, including inner blocks."""
    blocks = list(program.functions.values())
    while blocks:
        for operation in blocks.pop().operations:
            yield operation
            blocks += operation.blocks

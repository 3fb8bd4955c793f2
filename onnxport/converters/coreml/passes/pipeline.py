"""The passes between the lowering and the package: chosen, in order, each only where the program has what it looks for.

Of the 95 that coremltools runs, and validates the program after, these are what changes programs of ours; conv and
batch_norm have a pass of our own (folding.py), which is exact to the last bit of its rounding, and faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from onnxport.converters.coreml.library import PASS_REGISTRY
from onnxport.converters.coreml.lower import Lowered
from onnxport.converters.coreml.passes.constant_deduplication import share_weights
from onnxport.converters.coreml.passes.scale_fusion import fold_affine
from onnxport.converters.coreml.passes.taps import TapTracker

_ANY = frozenset(("",))


@dataclass(frozen=True)
class Pass:
    """One pass.

    Attributes:
        name: coremltools', or ours.
        needs: it runs on programs that have one of these operators.
        count: how many of them, at least.
        moves: whether operators keep their variables and compute something else in them.
        run: ours; coremltools' of that name unless given.
    """

    name: str
    needs: frozenset[str] = _ANY
    count: int = 1
    moves: bool = False
    run: Callable[[Any, TapTracker], None] | None = None


def _having(*ops: str) -> frozenset[str]:
    return frozenset(ops)


PASSES: tuple[Pass, ...] = (
    Pass("noop_elimination"),
    Pass("cast_optimization", _having("cast")),
    Pass("const_elimination"),
    Pass("fold_affine", _having("batch_norm", "mul", "add", "sub", "real_div"), run=fold_affine),
    Pass("fuse_matmul_weight_bias", _having("matmul")),
    Pass("fuse_linear_bias", _having("linear")),
    Pass("fuse_gelu_tanh_approximation", _having("tanh")),
    Pass("fuse_gelu_exact", _having("erf")),
    Pass("fuse_leaky_relu", _having("maximum")),
    Pass("fuse_squeeze_expand_dims", _having("squeeze", "expand_dims"), 2),
    Pass("merge_consecutive_paddings", _having("pad"), 2),
    Pass("fuse_layernorm_or_instancenorm", _having("reduce_mean"), 2),
    Pass("fuse_reduce_mean", _having("reduce_sum")),
    Pass("fuse_prelu", _having("relu"), 2),
    Pass("prelu_to_lrelu", _having("prelu")),
    Pass("merge_consecutive_relus", _having("relu"), 2),
    Pass("merge_consecutive_reshapes", _having("reshape"), 2),
    Pass("merge_consecutive_transposes", _having("transpose"), 2),
    Pass("fuse_transpose_matmul", _having("transpose")),
    Pass("reduce_transposes", _having("transpose"), 2, moves=True),
    Pass("loop_invariant_elimination", _having("while_loop")),
    Pass("remove_redundant_ops"),
    Pass("noop_elimination"),
    Pass("const_elimination"),
    Pass("dead_code_elimination"),
    Pass("dedup_op_and_var_names"),
)


def optimize(lowered: Lowered) -> Lowered:
    """The program in fewer operators, in place; `taps` are what is left to see of the ONNX values."""
    program = lowered.program
    taps = TapTracker(program.functions["main"], lowered.taps)
    for each in PASSES:
        if _wanted(each, program):
            _run(each, program, taps)
    share_weights(operations_of(program))
    return replace(lowered, taps=taps.taps())


def _wanted(each: Pass, program: Any) -> bool:
    if each.needs is _ANY:
        return True
    return sum(operation.op_type in each.needs for operation in operations_of(program)) >= each.count


def _run(each: Pass, program: Any, taps: TapTracker) -> None:
    if each.run is not None:
        each.run(program, taps)
        return
    before = taps.moving() if each.moves else None
    PASS_REGISTRY[f"common::{each.name}"](program)
    if before is not None:
        taps.keep_unmoved(before)


def operations_of(program: Any) -> Iterator[Any]:
    """Every operator of a program, those of inner blocks among them."""
    blocks = list(program.functions.values())
    while blocks:
        for operation in blocks.pop().operations:
            yield operation
            blocks += operation.blocks

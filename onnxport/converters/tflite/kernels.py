"""The element types that TFLite's kernels compute right, and the wider types that carry the others.

The table is measured: every op was compiled by litert-converter 0.5.0 and run by ai-edge-litert 2.3.0, with and
without XNNPACK, on the type's limits, negative values, infinities and NaN. A wider type carries the rest exactly:
int8 arithmetic in int32 wraps around when cast back, and float16 arithmetic is float32's, rounded where the model casts
or stores, as in ONNX Runtime. tests/converters/tflite/test_element_types.py checks every ONNX op against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

# Type that a kernel lacks -> type that holds all its values. For float64, the type in which TFLite computes.
CARRIER = {
    "bfloat16": "float32",
    "bool": "int32",
    "float16": "float32",
    "float64": "float32",
    "int16": "int32",
    "int8": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "uint8": "int32",
}

# Small types without tensors in TFLite or its interpreter -> type that holds their values.
HOLDERS = {
    **dict.fromkeys(
        "float4_e2m1fn float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz".split(), "float32"
    ),
    **dict.fromkeys(("int2", "int4"), "int8"),
    **dict.fromkeys(("uint2", "uint4"), "uint8"),
}

# Ops that only move data, so that the bits of a signed integer may carry other types. These two need it: the
# compiler moves a cast across them, back to where there is no kernel. The others carry float64 and uint64 so.
MOVES_BITS = frozenset(("broadcast_to", "gather"))
_MOVES = MOVES_BITS | frozenset(
    (
        "concatenation depth_to_space expand_dims gather_nd mirror_pad one_hot pack pad padv2 reshape "
        "reverse_sequence reverse_v2 select_v2 slice space_to_depth split_v squeeze strided_slice tile transpose"
    ).split()
)
# Ops that give the same bits for int64 and uint64.
_WRAPS = _MOVES | frozenset("add cumsum equal mul neg not_equal reduce_prod scatter_nd sub sum".split())
# Ops that only compare numbers.
_ORDERS = frozenset(
    "greater greater_equal less less_equal maximum minimum reduce_max reduce_min topk_v2".split()
)

_NUMBERS = "float32 int64 int32"
_NARROW = "float32 float16 int64 int32 int16 int8 uint8 bool uint16 uint32"
_EVERY = f"{_NARROW} bfloat16 float64 uint64"


@dataclass(frozen=True)
class Kernel:
    """The operand types of a tfl op."""

    dtypes: frozenset[str]  # of its data operands that it computes right
    data: tuple[int, ...] | None = None  # their positions, None for all; others are indices, axes, conditions

    def data_operands(self, count: int) -> tuple[int, ...]:
        return tuple(range(count)) if self.data is None else self.data


# (ops, positions of their data operands, element types)
_TABLE: tuple[tuple[str, tuple[int, ...] | None, str], ...] = (
    (
        "atan2 average_pool_2d ceil conv_2d conv_3d cos depthwise_conv_2d elu exp floor fully_connected gelu "
        "hard_swish leaky_relu local_response_normalization log log_softmax logistic max_pool_2d prelu relu relu6 "
        "relu_0_to_1 round rsqrt sin softmax sqrt square tanh",
        None,
        "float32",
    ),
    ("resize_bilinear resize_nearest_neighbor", (0,), "float32"),
    ("non_max_suppression_v4", (0, 1, 3, 4), "float32"),
    ("conv_3d_transpose transpose_conv", (1, 2, 3), "float32"),
    ("batch_matmul", None, "float32 int8"),  # int8 gives int32
    ("div pow sign squared_difference", None, "float32 int32"),
    ("abs", None, "float32 int32 int16"),
    (
        "greater greater_equal less less_equal maximum minimum mul neg range space_to_depth sub",
        None,
        _NUMBERS,
    ),
    ("cumsum mean reduce_max reduce_min reduce_prod reverse_sequence sum", (0,), _NUMBERS),
    ("add", None, "float32 int64 int32 int16"),
    ("not_equal", None, "float32 int64 int32 bool"),
    ("equal", None, "float32 int64 int32 int16 bool"),
    ("floor_mod", None, "float32 int64 int32 int16 int8"),
    ("floor_div", None, "int32 int16 int8"),
    ("bitwise_xor right_shift", None, "int32 int16 int8 uint8 uint16 uint32"),
    ("logical_and logical_not logical_or", None, "bool"),
    ("depth_to_space", None, "float32 int64 int32 int8 uint8"),
    ("where", None, "float32 int64 int32 int8 uint8 bool uint32"),
    ("pack", None, "float32 int64 int32 int16 int8 uint8 uint32"),
    ("concatenation", None, "float32 float16 int64 int32 int16 int8 uint8 bool uint32"),
    ("cast", None, f"{_NARROW} bfloat16 float64"),
    ("shape", None, _EVERY),
    ("bitcast expand_dims reshape squeeze", (0,), _EVERY),
    ("arg_max arg_min", (0,), "float32 int32 int8 uint8 bool"),
    ("mirror_pad", (0,), "float32 int64 int32 int8 uint8"),
    ("pad", (0,), "float32 int64 int32 bool"),
    ("padv2", (0, 2), "float32 int64 int32 bool"),
    ("one_hot", (2, 3), "float32 int64 int32 int8 bool"),
    ("tile", (0,), "float32 int64 int32 uint8 bool"),
    ("scatter_nd", (1,), "float32 int64 int32 int8 uint8 bool"),
    ("split_v topk_v2", (0,), "float32 int64 int32 int16 int8 uint8"),
    ("reverse_v2", (0,), "float32 int64 int32 int16 uint8 bool"),
    ("gather gather_nd", (0,), "float32 int64 int32 int16 int8 uint8 bool"),
    ("broadcast_to", (0,), "float32 int64 int32 int16 int8 uint8 bool uint32"),
    ("transpose", (0,), "float32 float16 int64 int32 int8 uint8 bool"),
    ("slice", (0,), "float32 float16 int64 int32 int8 uint8 bool uint32"),
    ("strided_slice", (0,), "float32 float16 int64 int32 int16 int8 uint8 bool uint32"),
    ("dynamic_update_slice", (0, 1), "float32 float16 int64 int32 int16 int8 bool"),
    ("select_v2", (1, 2), "float32 float16 int64 int32 int16 int8 bool uint32"),
)
KERNELS: dict[str, Kernel] = {
    op: Kernel(frozenset(dtypes.split()), data) for ops, data, dtypes in _TABLE for op in ops.split()
}

# The most axes over which a kernel broadcasts. Without broadcasting, any rank works.
BROADCAST_RANK = {
    **dict.fromkeys("equal greater greater_equal less less_equal not_equal".split(), 4),
    **dict.fromkeys("bitwise_xor floor_mod pow right_shift squared_difference".split(), 4),
    **dict.fromkeys("maximum minimum select_v2".split(), 5),
    **dict.fromkeys("add div mul sub".split(), 6),
    **dict.fromkeys("logical_and logical_or".split(), 7),
}


COMPARISONS = frozenset("equal greater greater_equal less less_equal not_equal".split())


class NoKernel(Exception):
    """A TFLite op has no kernel for a type that could hold its operands."""


@dataclass(frozen=True)
class Carrier:
    """The type that carries data through a kernel without their own."""

    dtype: str
    # It keeps the data's values, their bits, or the order of unsigned integers, as bits.
    how: Literal["value", "bits", "order"] = "value"


def carrier(op: str, dtypes: Sequence[np.dtype[np.generic]]) -> Carrier | None:
    """Return what carries data of `dtypes` through `tfl.<op>`; None if its kernel takes them.

    Raises:
        NoKernel: no type can.
    """
    name, *others = {dtype.name for dtype in dtypes}
    if others:
        raise NoKernel(
            f"TFLite's {op.upper()} takes operands of one type, not {name} and {', '.join(others)}"
        )
    taken = KERNELS[op].dtypes
    if name in taken:
        return None
    for wider in _carriers(op, dtypes[0]):
        if wider.dtype in taken:
            return wider
    raise NoKernel(f"TFLite's {op.upper()} does not compute on {name}")


def _carriers(op: str, dtype: np.dtype[np.generic]) -> list[Carrier]:
    """List what could carry a type through an op, best first."""
    bits = f"int{dtype.itemsize * 8}"
    if dtype.name == "uint64":
        how: dict[bool, Literal["bits", "order"]] = {op in _WRAPS: "bits", op in _ORDERS: "order"}
        return [Carrier(bits, how[True])] if True in how else []
    if op in MOVES_BITS or (op in _MOVES and dtype.name == "float64"):
        return [Carrier(bits, "bits")]
    return [Carrier(CARRIER[dtype.name])] if dtype.name in CARRIER else []

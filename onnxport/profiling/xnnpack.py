"""Alignment of XNNPACK's operators, of which names and order are known, with those of a TFLite file.

XNNPACK keeps the order of the operators, leaves out those it fuses (a padding into a convolution) and inserts others (a
conversion, a copy). The longest pairing of one kind that keeps both orders aligns the two lists. Names of operators
are those of XNNPACK's `operator-type-defs`.
"""

from __future__ import annotations

from collections.abc import Sequence

# XNNPACK's name, before the parenthesis, to the TFLite operators that it may stand for.
_MEANS = {
    "Convolution": "CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED",
    "Fully Connected": "FULLY_CONNECTED CONV_2D BATCH_MATMUL",
    "Dynamic Fully Connected": "FULLY_CONNECTED BATCH_MATMUL",
    "Batch Matrix Multiply": "BATCH_MATMUL FULLY_CONNECTED",
    "Deconvolution": "TRANSPOSE_CONV",
    "HardSwish": "HARD_SWISH",
    "Sigmoid": "LOGISTIC",
    "Clamp": "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 MINIMUM MAXIMUM",
    "LeakyReLU": "LEAKY_RELU",
    # What XNNPACK calls a table of 8-bit integers, which it makes of such an operator between DEQUANTIZE and QUANTIZE.
    "Invalid Unary Op": "LEAKY_RELU HARD_SWISH LOGISTIC TANH ELU GELU EXP SQRT RSQRT ABS NEG",
    "PReLU": "PRELU",
    "ELU": "ELU",
    "GELU": "GELU",
    "ApproxGELU": "GELU",
    "Tanh": "TANH",
    "Abs": "ABS",
    "Negate": "NEG",
    "Exp": "EXP",
    "Log": "LOG",
    "Sine": "SIN",
    "Cosine": "COS",
    "Floor": "FLOOR",
    "Ceiling": "CEIL",
    "Bankders Rounding": "ROUND",
    "Bankers Rounding": "ROUND",
    "Square": "SQUARE MUL POW",
    "Square Root": "SQRT",
    "Reciprocal Square Root": "RSQRT",
    "Add": "ADD",
    "Subtract": "SUB",
    "Multiply": "MUL SQUARE",
    "Divide": "DIV",
    "Maximum": "MAXIMUM",
    "Minimum": "MINIMUM",
    "Power": "POW",
    "Squared Difference": "SQUARED_DIFFERENCE",
    "Max Pooling": "MAX_POOL_2D",
    "Average Pooling": "AVERAGE_POOL_2D",
    "Mean": "MEAN AVERAGE_POOL_2D",
    "Mean Squared": "MEAN",
    "Sum": "SUM",
    "Reduce Max": "REDUCE_MAX",
    "Reduce Min": "REDUCE_MIN",
    "Softmax": "SOFTMAX",
    "Constant Pad": "PAD PADV2",
    "Slice": "SLICE STRIDED_SLICE SPLIT",
    "Copy": "CONCATENATION RESHAPE EXPAND_DIMS SQUEEZE SPLIT PACK BROADCAST_TO",
    "Static Reshape": "RESHAPE EXPAND_DIMS SQUEEZE",
    "Fuse Dims": "RESHAPE",
    "Transpose": "TRANSPOSE",
    "Resize Bilinear": "RESIZE_BILINEAR",
    "Depth To Space": "DEPTH_TO_SPACE",
    "Space To Depth": "SPACE_TO_DEPTH",
    "Convert": "QUANTIZE DEQUANTIZE CAST",
}
_KINDS = {name: frozenset(operators.split()) for name, operators in _MEANS.items()}
# XNNPACK runs several operators for one of these: a copy for each piece.
_PIECEWISE = frozenset(("CONCATENATION", "SPLIT", "PACK"))
# XNNPACK inserts these for the operator behind them.
_HELPERS = frozenset(("Convert", "Copy", "Transpose", "Static Reshape", "Fuse Dims"))


def kind(name: str) -> str:
    """Return "Fully Connected" for "Fully Connected (NC, F32) GEMM"."""
    return name.partition(" (")[0]


def shown(name: str) -> str:
    """Return the name for a report: XNNPACK has none for a table of integers, about which nothing is invalid."""
    return "Table of integers" if name == "Invalid Unary Op" else name


def is_helper(name: str) -> bool:
    """Return whether XNNPACK may have inserted such an operator for another."""
    return kind(name) in _HELPERS


def align(names: Sequence[str], operators: Sequence[str]) -> list[int | None]:
    """Return the place in `operators` (TFLite's) of each of XNNPACK's `names`; None for inserted and unknown ones."""
    kinds = [_KINDS.get(kind(name), frozenset({kind(name).upper().replace(" ", "_")})) for name in names]
    rows, columns = len(names), len(operators)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in reversed(range(rows)):
        here, below = best[row], best[row + 1]
        for column in reversed(range(columns)):
            found = max(below[column], here[column + 1])
            if operators[column] in kinds[row]:
                stays = operators[column] in _PIECEWISE
                found = max(found, 1 + below[column if stays else column + 1])
            here[column] = found
    return _trace(best, kinds, operators)


def _trace(
    best: Sequence[Sequence[int]], kinds: Sequence[frozenset[str]], operators: Sequence[str]
) -> list[int | None]:
    """Return the pairing whose length `best` has."""
    places: list[int | None] = []
    column = 0
    for row in range(len(kinds)):
        while column < len(operators) and best[row][column] == best[row][column + 1]:
            column += 1  # the pairing is as long without it
        if column == len(operators):
            places.append(None)
            continue
        stays = operators[column] in _PIECEWISE
        following = best[row + 1][column if stays else column + 1]
        if operators[column] in kinds[row] and best[row][column] == 1 + following:
            places.append(column)
            column += 0 if stays else 1
        else:
            places.append(None)
    return places

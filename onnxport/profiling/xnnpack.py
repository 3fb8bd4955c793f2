"""Which TFLite operators XNNPACK's are: it tells names and order, no tensors.

XNNPACK keeps the order of what it is given, leaves out what it fuses (a padding into a convolution) and puts in what it
needs (a conversion, a copy). So the two lists are aligned: the longest pairing that keeps both orders, in which the
operators of a pair are of one kind. Names of operators are those of XNNPACK's `operator-type-defs`.
"""

from __future__ import annotations

from collections.abc import Sequence

# The beginning of XNNPACK's name, before the parenthesis, to the operators of TFLite that it may be.
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
# One node that XNNPACK has several operators for: a copy for each piece.
_PIECEWISE = frozenset(("CONCATENATION", "SPLIT", "PACK"))
# Put in for the operator behind it.
_HELPERS = frozenset(("Convert", "Copy", "Transpose", "Static Reshape", "Fuse Dims"))


def kind(name: str) -> str:
    """ "Fully Connected" of "Fully Connected (NC, F32) GEMM"."""
    return name.partition(" (")[0]


def is_helper(name: str) -> bool:
    """Whether such an operator may serve another one."""
    return kind(name) in _HELPERS


def paired(names: Sequence[str], operators: Sequence[str]) -> list[int | None]:
    """The place in `operators`, TFLite's, of each of XNNPACK's; None for what it put in itself, or is not known."""
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
    return list(_walked(best, kinds, operators))


def _walked(
    best: Sequence[Sequence[int]], kinds: Sequence[frozenset[str]], operators: Sequence[str]
) -> list[int | None]:
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

"""What each operator demands of its data inputs."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxport.samples.demands.demand import Demand
from onnxport.samples.shapes.analysis import Site
from onnxport.samples.shapes.fact import Size, fixed, fixed_elements
from onnxport.samples.value_uses import constant

# From a node to its demand on one input; None for none.
Rule = Callable[[Site], Demand | None]

# The smallest positive number that generated inputs have, so that logarithms and quotients stay moderate.
POSITIVE = 2.0**-10
_TABLE = 8  # numbers that are compared with a limit


def _index_of(table: int, default: int = 0) -> Rule:
    """Demand an index into an axis of input `table`: its attribute `axis`, or the default."""

    def rule(site: Site) -> Demand | None:
        extent = _extent(site, table, site.integer("axis", default))
        return None if extent is None else Demand(0, extent - 1, is_index=True)

    return rule


def _scatter_index(site: Site) -> Demand | None:
    found = _index_of(0)(site)
    if found is None:
        return None
    # Of two updates of one element the order is not defined.
    return Demand(0, found.high, is_index=True, structure="distinct", axis=site.integer("axis", 0))


def _index_rows(is_unique: bool) -> Rule:
    """Demand indices of several axes on the last axis."""

    def rule(site: Site) -> Demand | None:
        dims, indices = site.dims(0), site.dims(1)
        depth = fixed(indices[-1]) if indices else None
        start = site.integer("batch_dims", 0)
        if dims is None or depth is None:
            return None
        columns = [fixed(dim) for dim in dims[start : start + depth]]
        if None in columns:
            return None
        return Demand(
            0,
            is_index=True,
            columns=tuple(each for each in columns if each is not None),
            structure="distinct-rows" if is_unique else "",
        )

    return rule


def _one_hot(site: Site) -> Demand | None:
    depth = fixed_elements(site.fact(1))
    return None if not depth else Demand(0, depth[0] - 1, is_index=True)


def _length_of(table: int, axis: int) -> Rule:
    """Demand a number of steps of input `table`."""

    def rule(site: Site) -> Demand | None:
        extent = _extent(site, table, axis)
        return None if extent is None else Demand(1, extent, is_index=True, is_length=True)

    return rule


def _reversal_length(site: Site) -> Demand | None:
    return _length_of(0, site.integer("time_axis", 0))(site)


def _recurrent_length(site: Site) -> Demand | None:
    return _length_of(0, 1 if site.integer("layout", 0) else 0)(site)


def _castable(site: Site) -> Demand | None:
    """Demand numbers that the target type holds: what others become is not defined."""
    target = ir.DataType(site.integer("to", 1))
    given = site.node.inputs[0].dtype if site.node.inputs[0] is not None else None
    if given is None or not given.is_floating_point():
        return None
    if target.is_floating_point():
        most = float(ml_dtypes.finfo(target.numpy()).max)  # type: ignore[no-untyped-call]
        return Demand(-most, most)
    if not target.is_integer():
        return None
    bounds = ml_dtypes.iinfo(target.numpy())  # type: ignore[no-untyped-call]
    most = float(np.float32(bounds.max))
    if most > bounds.max:
        most = float(np.nextafter(np.float32(most), np.float32(0)))
    return Demand(bounds.min, most)


def _divisor(site: Site) -> Demand | None:
    return Demand(nonzero=True) if _is_integer(site, 1) else Demand(low=POSITIVE)


def _shift(site: Site) -> Demand | None:
    value = site.node.inputs[0]
    bits = value.dtype.itemsize * 8 if value is not None and value.dtype is not None else 8
    return Demand(0, int(bits) - 1, is_index=True)


def _exponent(site: Site) -> Demand | None:
    # Larger powers of small integers overflow, and negative ones are no integers.
    if _is_integer(site, 1):
        return Demand(0, 3, is_index=True)
    return Demand(0, 3) if _is_integer(site, 0) else Demand(-4, 4)


def _base(site: Site) -> Demand | None:
    if _is_integer(site, 0):
        return Demand(0, 5)
    exponents = [each for each in site.fact(1).elements or (None,) if isinstance(each, np.ndarray)]
    is_whole = bool(exponents) and all(bool((each == np.round(each)).all()) for each in exponents)
    return None if is_whole else Demand(low=POSITIVE)


def _limit(is_upper: bool) -> Rule:
    """Demand that a scalar which a table is compared with splits the table: an upper limit in its upper half."""

    def rule(site: Site) -> Demand | None:
        table = next((each for each in map(constant, site.node.inputs) if each is not None), None)
        scalars = [dims for index in range(2) if (dims := site.dims(index)) is not None and len(dims) == 0]
        if table is None or table.size < _TABLE or table.dtype.kind != "f" or not scalars:
            return None
        low, middle, high = (float(np.quantile(table, share)) for share in (0.0, 0.5, 1.0))
        return Demand(middle, high) if is_upper else Demand(low, middle)

    return rule


def _scale(site: Site) -> Demand | None:
    return Demand(low=POSITIVE)


def _zero_point(site: Site) -> Demand | None:
    """Demand 0 of the zero point of floats."""
    value = site.node.inputs[2]
    is_float = value is not None and value.dtype is not None and value.dtype.is_floating_point()
    return Demand(0, 0) if is_float else None


def _unpool_position(site: Site) -> Demand | None:
    """Demand positions within the input: the output is at least as large."""
    dims = site.dims(0)
    sizes = [extent for dim in dims or () if (extent := fixed(dim)) is not None]
    if not dims or len(sizes) < len(dims):
        return None
    return Demand(0, math.prod(sizes) - 1, is_index=True, structure="distinct-all")


def _cache_position(site: Site) -> Demand | None:
    """Demand a place in the cache from which the update fits."""
    axis = site.integer("axis", -2)
    cache, update = _extent(site, 0, axis), _extent(site, 1, axis)
    return None if cache is None or update is None else Demand(0, cache - update, is_index=True)


def _pool_word(site: Site) -> Demand | None:
    pool = site.integers("pool_int64s")
    return Demand(min(pool), max(pool), is_index=True) if pool else None


def _constant(**demand: object) -> Rule:
    def rule(site: Site) -> Demand | None:
        return Demand(**demand)  # type: ignore[arg-type]

    return rule


# (operator, input) -> its demand.
DEMANDS: dict[tuple[str, int], Rule] = {
    **{(op, 4): _recurrent_length for op in ("LSTM", "GRU", "RNN")},
    ("Gather", 1): _index_of(0),
    ("GatherElements", 1): _index_of(0),
    ("ScatterElements", 1): _scatter_index,
    ("Scatter", 1): _scatter_index,
    ("GatherND", 1): _index_rows(False),
    ("ScatterND", 1): _index_rows(True),
    ("EmbedLayerNormalization", 0): _index_of(2),
    ("EmbedLayerNormalization", 1): _index_of(4),
    ("ArrayFeatureExtractor", 1): _index_of(0, -1),
    ("OneHot", 0): _one_hot,
    ("NegativeLogLikelihoodLoss", 1): _index_of(0, 1),
    ("SoftmaxCrossEntropyLoss", 1): _index_of(0, 1),
    ("NegativeLogLikelihoodLoss", 2): _scale,
    ("SoftmaxCrossEntropyLoss", 2): _scale,
    ("ReverseSequence", 1): _reversal_length,
    ("RoiAlign", 1): _constant(low=0, high=16, structure="corners"),
    ("RoiAlign", 2): _index_of(0),
    ("NonMaxSuppression", 0): _constant(low=0, high=1, structure="corners"),
    ("NonMaxSuppression", 1): _constant(low=0, high=1),
    ("RotaryEmbedding", 3): _index_of(1),
    ("MaxUnpool", 1): _unpool_position,
    ("TensorScatter", 2): _cache_position,
    ("TfIdfVectorizer", 0): _pool_word,
    ("Cast", 0): _castable,
    ("Div", 1): _divisor,
    ("Mod", 1): _divisor,
    ("BitShift", 1): _shift,
    ("Pow", 0): _base,
    ("Pow", 1): _exponent,
    **{(op, 1): _limit(False) for op in ("Greater", "GreaterOrEqual")},
    **{(op, 1): _limit(True) for op in ("Less", "LessOrEqual")},
    **{(op, 0): _limit(True) for op in ("Greater", "GreaterOrEqual")},
    **{(op, 0): _limit(False) for op in ("Less", "LessOrEqual")},
    ("Log", 0): _scale,
    ("Sqrt", 0): _constant(low=0),
    ("Reciprocal", 0): _scale,
    ("Acosh", 0): _constant(low=1, high=100),
    ("Acos", 0): _constant(low=-1, high=1),
    ("Asin", 0): _constant(low=-1, high=1),
    ("Atanh", 0): _constant(low=-0.96875, high=0.96875),
    ("IsInf", 0): _constant(structure="special"),
    ("IsNaN", 0): _constant(structure="special"),
    ("GridSample", 1): _constant(low=-1.125, high=1.125),
    ("BatchNormalization", 4): _scale,
    ("QuantizeLinear", 1): _scale,
    ("DequantizeLinear", 1): _scale,
    ("QuantizeLinear", 2): _zero_point,
    ("DequantizeLinear", 2): _zero_point,
    **{("QLinearMatMul", index): _scale for index in (1, 4, 6)},
    **{("QLinearConv", index): _scale for index in (1, 4, 6)},
}


def demand(site: Site, index: int) -> Demand | None:
    """Return what a node demands of one input; None for none."""
    rule = DEMANDS.get((site.node.op_type, index))
    return None if rule is None else rule(site)


def _extent(site: Site, table: int, axis: int) -> int | None:
    dims = site.dims(table)
    if dims is None or not -len(dims) <= axis < len(dims):
        return None
    extent: Size = dims[axis]
    return fixed(extent)


def _is_integer(site: Site, index: int) -> bool:
    value = site.node.inputs[index] if index < len(site.node.inputs) else None
    return value is not None and value.dtype is not None and value.dtype.is_integer()

"""Shape rules of operators that read sizes, count, reduce or choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onnxport.core.arrays import Array
from onnxport.samples.shapes.analysis import Rule, Site
from onnxport.samples.shapes.fact import (
    MOST_ELEMENTS,
    UNKNOWN,
    Element,
    Fact,
    Size,
    fixed,
    fixed_elements,
    size,
)
from onnxport.samples.shapes.layout import axes_of


def _shape(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    if dims is None:
        yield Fact((None,))
        return
    start, end = site.integer("start", 0), site.integer("end", len(dims))
    chosen = dims[start:end]
    yield Fact((size(len(chosen)),), chosen)


def _size(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    total: Size = size(1)
    for dim in dims if dims is not None else (None,):
        total = total * dim if isinstance(total, np.ndarray) and isinstance(dim, np.ndarray) else None
    yield Fact((), (total,))


def _range(site: Site) -> Iterator[Fact]:
    ends: list[Element] = []
    for fact in site.facts:
        ends.append(site.sizes.read(fact.elements[0]) if fact.elements else None)
    start, limit, delta = ends
    if isinstance(limit, str) and fixed(start) == 0 and fixed(delta) == 1:
        yield Fact((limit,))
        return
    if not all(isinstance(each, np.ndarray) for each in ends):
        yield Fact((None,))
        return
    assert isinstance(start, np.ndarray)
    assert isinstance(limit, np.ndarray)
    assert isinstance(delta, np.ndarray)
    count = np.maximum(np.ceil((limit - start) / np.where(delta == 0, 1, delta)), 0).astype(np.int64)
    last = start + np.maximum(count - 1, 0) * delta
    span = None if last.dtype.kind == "f" else (np.minimum(start, last), np.maximum(start, last))
    yield Fact((count,), span=span)


def _constant_of_shape(site: Site) -> Iterator[Fact]:
    target = site.fact(0).elements
    if target is None:
        shape = site.dims(0)
        rank = fixed(shape[0]) if shape else None
        yield Fact(None if rank is None else (None,) * rank)
        return
    dims = tuple(site.sizes.read(each) for each in target)
    attribute = site.node.attributes.get("value")
    value = np.zeros(1, np.float32) if attribute is None else attribute.as_tensor().numpy().ravel()
    count = np.prod([fixed(dim) or 0 for dim in dims], dtype=np.int64)
    if value.dtype.kind not in "iub":
        yield Fact(dims)
        return
    number = size(int(value[0]))
    elements = (number,) * int(count) if 0 < count <= MOST_ELEMENTS else None
    yield Fact(dims, elements, (number, number))


def _reduction(combine: Callable[[Array, Array], Array] | None) -> Rule:
    def rule(site: Site) -> Iterator[Fact]:
        dims = site.dims(0)
        if dims is None:
            yield UNKNOWN
            return
        axes = axes_of(site, 1, len(dims))
        if axes is None and site.has(1) and site.fact(1).elements is None:
            yield Fact((None,) * len(dims) if site.integer("keepdims", 1) else None)
            return
        if not axes:
            axes = [] if site.integer("noop_with_empty_axes", 0) else list(range(len(dims)))
        keeps = site.integer("keepdims", 1)
        kept = tuple(
            size(1) if axis in axes else dim for axis, dim in enumerate(dims) if keeps or axis not in axes
        )
        yield Fact(kept, _combine(site, combine, len(axes) == len(dims)))

    return rule


def _combine(
    site: Site, combine: Callable[[Array, Array], Array] | None, is_total: bool
) -> tuple[Element, ...] | None:
    elements = site.fact(0).elements
    if combine is None or not elements or not is_total:
        return None
    read = [site.sizes.read(each) for each in elements]
    total = read[0]
    for each in read[1:]:
        both = isinstance(total, np.ndarray) and isinstance(each, np.ndarray)
        total = combine(total, each) if both else None  # type: ignore[arg-type]
    return (total,)


def _arg(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    if dims is None:
        yield UNKNOWN
        return
    axis = site.integer("axis", 0) % len(dims)
    kept = (size(1),) if site.integer("keepdims", 1) else ()
    extent = dims[axis]
    span = (size(0), extent - 1) if isinstance(extent, np.ndarray) else None
    yield Fact((*dims[:axis], *kept, *dims[axis + 1 :]), span=span)


def _top_k(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    if dims is None:
        yield from (UNKNOWN, UNKNOWN)
        return
    axis = site.integer("axis", -1) % len(dims)
    given = site.fact(1).elements if site.has(1) else (size(site.integer("k", 1)),)
    count = site.sizes.read(given[0]) if given else None
    extent = dims[axis]
    if isinstance(count, np.ndarray) and isinstance(extent, np.ndarray):
        site.require(count <= extent, f"at least k values in axis {axis}")
    span = (size(0), extent - 1) if isinstance(extent, np.ndarray) else None
    result = (*dims[:axis], count, *dims[axis + 1 :])
    yield Fact(result)
    yield Fact(result, span=span)


def _one_hot(site: Site) -> Iterator[Fact]:
    dims, depth = site.dims(0), fixed_elements(site.fact(1))
    if dims is None:
        yield UNKNOWN
        return
    axis = site.integer("axis", -1) % (len(dims) + 1)
    yield Fact((*dims[:axis], size(depth[0]) if depth else None, *dims[axis:]))


def _non_zero(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    yield Fact((None if dims is None else size(len(dims)), None))


RULES: dict[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    **dict.fromkeys(
        "ReduceMean ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare".split(), _reduction(None)
    ),
    "ReduceSum": _reduction(np.add),
    "ReduceProd": _reduction(np.multiply),
    "ReduceMax": _reduction(np.maximum),
    "ReduceMin": _reduction(np.minimum),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "TopK": _top_k,
    "OneHot": _one_hot,
    "NonZero": _non_zero,
}

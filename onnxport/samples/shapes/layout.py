"""Shape rules of operators that move elements: Reshape, Concat, Slice, Gather and their kin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxport.core.arrays import Array
from onnxport.samples.shapes.analysis import Rule, Site
from onnxport.samples.shapes.fact import UNKNOWN, Element, Fact, Size, fixed, fixed_elements, size


def axes_of(site: Site, index: int, rank: int) -> list[int] | None:
    """Return the axes of an attribute or, in newer opsets, of an input; None where they are absent or unknown."""
    given = site.integers("axes")
    if given is None and site.has(index):
        given = fixed_elements(site.fact(index))
    return None if given is None else [axis % rank if rank else 0 for axis in given]


def _reshape(site: Site) -> Iterator[Fact]:
    given = site.integers("shape") if not site.has(1) else None
    target = tuple(size(each) for each in given) if given is not None else site.fact(1).elements
    if target is None:
        shape = site.dims(1)
        rank = fixed(shape[0]) if shape else None
        yield Fact(None if rank is None else (None,) * rank, site.fact(0).elements, site.fact(0).span)
        return
    dims = site.dims(0)
    copies = not site.integer("allowzero", 0)
    wanted: list[Size] = [site.sizes.read(each) for each in target]
    for axis, each in enumerate(wanted):
        if copies and fixed(each) == 0:
            wanted[axis] = dims[axis] if dims is not None and axis < len(dims) else None
    yield Fact(tuple(_resolve(site, dims, wanted)), site.fact(0).elements, site.fact(0).span)


def _resolve(site: Site, dims: Sequence[Size] | None, wanted: list[Size]) -> list[Size]:
    """Compute the size -1, or demand that the numbers of elements agree."""
    inferred = [axis for axis, each in enumerate(wanted) if fixed(each) == -1]
    if dims is None or any(each is None for each in wanted) or any(each is None for each in dims):
        return [None if axis in inferred else each for axis, each in enumerate(wanted)]
    rest = [each for axis, each in enumerate(wanted) if axis not in inferred]
    have, have_symbols = _product(dims)
    need, need_symbols = _product(rest)
    for symbol in list(need_symbols):
        if symbol in have_symbols:
            have_symbols.remove(symbol)
            need_symbols.remove(symbol)
    if not inferred:
        _match(site, have, have_symbols, need, need_symbols)
        return wanted
    (axis,) = inferred[:1]
    wanted[axis] = None
    if not need_symbols and have_symbols and len(have_symbols) == 1 and bool((have == need).all()):
        wanted[axis] = have_symbols[0]
    elif not need_symbols and not have_symbols:
        safe = np.where(need == 0, 1, need)
        site.require((have % safe == 0) & (need > 0), f"a number of elements that {_text(need)} divides")
        wanted[axis] = have // safe
    return wanted


def _match(site: Site, have: Array, have_symbols: list[str], need: Array, need_symbols: list[str]) -> None:
    """Demand equal numbers of elements; a single free symbol follows."""
    symbols = [*have_symbols, *need_symbols]
    if not symbols:
        site.require(have == need, f"{_text(need)} elements")
    elif len(symbols) == 1:
        many, few = (need, have) if have_symbols else (have, need)
        if bool((many % np.where(few == 0, 1, few) == 0).all()):
            site.equal(symbols[0], many // np.where(few == 0, 1, few), "")


def _product(dims: Sequence[Size]) -> tuple[Array, list[str]]:
    total, symbols = size(1), []
    for dim in dims:
        if isinstance(dim, str):
            symbols.append(dim)
        elif dim is not None:
            total = total * dim
    return total, symbols


def _text(sizes: Array) -> str:
    return str(int(sizes[0])) if sizes.size == 1 else "the target's"


def _flatten(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    if dims is None:
        yield UNKNOWN
        return
    axis = site.integer("axis", 1)
    axis = axis + len(dims) if axis < 0 else axis
    yield Fact((_joint_size(dims[:axis]), _joint_size(dims[axis:])))


def _joint_size(dims: Sequence[Size]) -> Size:
    """Return the product of sizes; a symbol where all others are 1."""
    if any(dim is None for dim in dims):
        return None
    total, symbols = _product(dims)
    if not symbols:
        return total
    return symbols[0] if len(symbols) == 1 and bool((total == 1).all()) else None


def _squeeze(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    if dims is None:
        yield Fact(None, site.fact(0).elements, site.fact(0).span)
        return
    axes = axes_of(site, 1, len(dims))
    if axes is None:
        axes = [axis for axis, dim in enumerate(dims) if isinstance(dim, np.ndarray) and (dim == 1).all()]
    for axis in axes:
        site.equal(dims[axis], size(1), f"a size of 1 in axis {axis}")
    kept = tuple(dim for axis, dim in enumerate(dims) if axis not in axes)
    yield Fact(kept, site.fact(0).elements, site.fact(0).span)


def _unsqueeze(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    given = site.integers("axes") or (fixed_elements(site.fact(1)) if site.has(1) else None)
    if dims is None or given is None:
        yield Fact(None, site.fact(0).elements, site.fact(0).span)
        return
    rank = len(dims) + len(given)
    axes, rest = {axis % rank for axis in given}, iter(dims)
    result = tuple(size(1) if axis in axes else next(rest, None) for axis in range(rank))
    yield Fact(result, site.fact(0).elements, site.fact(0).span)


def _transpose(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    if dims is None:
        yield UNKNOWN
        return
    order = site.integers("perm") or list(reversed(range(len(dims))))
    yield Fact(tuple(dims[axis] for axis in order), span=site.fact(0).bounds)


def _concat(site: Site) -> Iterator[Fact]:
    shapes = [site.dims(index) for index in range(len(site.facts))]
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    elements = _concatenate_elements(site)
    if rank is None or any(shape is not None and len(shape) != rank for shape in shapes):
        yield Fact(None, elements)
        return
    axis = site.integer("axis", 0) % rank if rank else 0
    result: list[Size] = [None] * rank
    for shape in shapes:
        for other, dim in enumerate(shape or ()):
            if other != axis:
                result[other] = site.equal(result[other], dim, f"equal sizes in axis {other}")
    result[axis] = _sum([None if shape is None else shape[axis] for shape in shapes])
    bounds = [fact.bounds for fact in site.facts]
    known = [each for each in bounds if each is not None]
    span = None
    if known and len(known) == len(bounds):
        lows, highs = zip(*known, strict=True)
        span = np.minimum.reduce(np.broadcast_arrays(*lows)), np.maximum.reduce(np.broadcast_arrays(*highs))
    yield Fact(tuple(result), elements, span)


def _concatenate_elements(site: Site) -> tuple[Element, ...] | None:
    """Return the elements of joined vectors; unknown ones where one of a known length is unknown."""
    joined: list[Element] = []
    for index, fact in enumerate(site.facts):
        dims = site.dims(index)
        length = fixed(dims[0]) if dims is not None and len(dims) == 1 else None
        if fact.elements is None and (length is None or length > 8):
            return None
        joined.extend(fact.elements if fact.elements is not None else [None] * (length or 0))
    return tuple(joined)


def _sum(sizes: Sequence[Size]) -> Size:
    total = size(0)
    rest = [each for each in sizes if fixed(each) != 0]
    if len(rest) == 1:
        return rest[0]
    for each in sizes:
        if not isinstance(each, np.ndarray):
            return None
        total = total + each
    return total


def _slice(site: Site) -> Iterator[Fact]:
    dims, fact = site.dims(0), site.fact(0)
    starts, ends = _bounds_of(site, "starts", 1), _bounds_of(site, "ends", 2)
    if dims is None or starts is None or ends is None:
        yield Fact(None if dims is None else (None,) * len(dims), span=fact.bounds)
        return
    axes = axes_of(site, 3, len(dims)) if site.has(3) or site.integers("axes") else list(range(len(starts)))
    steps = fixed_elements(site.fact(4)) if site.has(4) else [1] * len(starts)
    if axes is None or steps is None:
        yield Fact((None,) * len(dims), span=fact.bounds)
        return
    result = list(dims)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=False):
        result[axis] = _slice_size(
            site.sizes.read(dims[axis]), site.sizes.read(start), site.sizes.read(end), step
        )
    yield Fact(tuple(result), _slice_elements(fact, starts, ends, steps), fact.bounds)


def _bounds_of(site: Site, name: str, index: int) -> tuple[Element, ...] | None:
    given = site.integers(name)
    return tuple(size(each) for each in given) if given is not None else site.fact(index).elements


def _slice_size(extent: Size, start: Element, end: Element, step: int) -> Size:
    far = 2**31 - 1
    if step == 1 and fixed(start) == 0 and (fixed(end) or 0) >= far:
        return extent
    if not (isinstance(extent, np.ndarray) and isinstance(start, np.ndarray) and isinstance(end, np.ndarray)):
        return None
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first, last = (np.clip(np.where(each < 0, each + extent, each), low, high) for each in (start, end))
    last = np.where((end < -extent) & (step < 0), -1, last)
    return np.asarray(np.maximum(-((first - last) // step), 0))


def _slice_elements(
    fact: Fact, starts: Sequence[Element], ends: Sequence[Element], steps: Sequence[int]
) -> tuple[Element, ...] | None:
    if fact.elements is None or len(starts) != 1 or fact.dims is None or len(fact.dims) != 1:
        return None
    start, end = fixed(starts[0]), fixed(ends[0])
    return None if start is None or end is None else fact.elements[start : end : steps[0]]


def _split(site: Site) -> Iterator[Fact]:
    dims, count = site.dims(0), len(site.node.outputs)
    if dims is None:
        yield from [UNKNOWN] * count
        return
    axis = site.integer("axis", 0) % len(dims)
    given = site.integers("split")
    parts: Sequence[Size] | None = (
        [size(each) for each in given]
        if given is not None
        else site.fact(1).elements
        if site.has(1)
        else None
    )
    extent = dims[axis]
    if parts is None and not site.has(1) and isinstance(extent, np.ndarray):
        chunk = -(-extent // count)
        parts = [*[chunk] * (count - 1), extent - chunk * (count - 1)]
    elif parts is not None and isinstance(total := _sum(parts), np.ndarray):
        site.equal(extent, total, f"a size of {_text(total)} in axis {axis}")
    for index in range(count):
        part = parts[index] if parts is not None and index < len(parts) else None
        yield Fact((*dims[:axis], part, *dims[axis + 1 :]), span=site.fact(0).bounds)


def _gather(site: Site) -> Iterator[Fact]:
    dims, indices = site.dims(0), site.dims(1)
    axis = site.integer("axis", 0)
    if dims is None or indices is None:
        yield UNKNOWN
        return
    axis = axis % len(dims) if dims else 0
    _within(site, dims[axis] if dims else None, site.fact(1))
    elements = None
    places = fixed_elements(site.fact(1))
    known = site.fact(0).elements
    if known is not None and places is not None and len(dims) == 1:
        elements = tuple(known[place] if -len(known) <= place < len(known) else None for place in places)
    yield Fact((*dims[:axis], *indices, *dims[axis + 1 :]), elements, site.fact(0).bounds)


def _within(site: Site, extent: Size, indices: Fact) -> None:
    """Demand that indices lie within the axis."""
    bounds = indices.bounds
    if bounds is None:
        return
    low, high = bounds
    if isinstance(extent, np.ndarray):
        site.require((low >= -extent) & (high < extent), f"indices below {_text(extent)}")
    elif isinstance(extent, str) and low.shape == high.shape == (1,):
        site.sizes.need(extent, np.maximum(high + 1, -low))


def _gather_elements(site: Site) -> Iterator[Fact]:
    yield Fact(site.dims(1), span=site.fact(0).bounds)


def _gather_nd(site: Site) -> Iterator[Fact]:
    dims, indices = site.dims(0), site.dims(1)
    depth = fixed(indices[-1]) if indices else None
    if dims is None or indices is None or depth is None:
        yield UNKNOWN
        return
    yield Fact((*indices[:-1], *dims[site.integer("batch_dims", 0) + depth :]))


def _scatter_elements(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    if dims:
        _within(site, dims[site.integer("axis", 0) % len(dims)], site.fact(1))
    yield Fact(dims)


def _expand(site: Site) -> Iterator[Fact]:
    dims, target = site.dims(0), site.fact(1).elements
    _keep_ones(site, target)
    wanted = None if target is None else tuple(site.sizes.read(each) for each in target)
    yield Fact(site.broadcast_all(dims, wanted), span=site.fact(0).bounds)


def _keep_ones(site: Site, target: Sequence[Element] | None) -> None:
    """Suggest 1 for sizes whose target is unknown: that fits any."""
    for axis, dim in enumerate(reversed(site.fact(0).dims or ())):
        known = target[-1 - axis] if target is not None and axis < len(target) else None
        if isinstance(dim, str) and known is None:
            site.sizes.suggest(dim, size(1))


def _tile(site: Site) -> Iterator[Fact]:
    dims, repeats = site.dims(0), site.fact(1).elements
    if dims is None or repeats is None or len(repeats) != len(dims):
        yield Fact(None if dims is None else (None,) * len(dims))
        return
    pairs = zip(dims, (site.sizes.read(each) for each in repeats), strict=True)
    yield Fact(tuple(_multiply(dim, factor) for dim, factor in pairs), span=site.fact(0).bounds)


def _multiply(dim: Size, factor: Size) -> Size:
    if fixed(factor) == 1:
        return dim
    if fixed(dim) == 1:
        return factor
    return dim * factor if isinstance(dim, np.ndarray) and isinstance(factor, np.ndarray) else None


def _pad(site: Site) -> Iterator[Fact]:
    dims = site.dims(0)
    given = site.integers("pads") or site.integers("paddings")
    pads = tuple(size(each) for each in given) if given is not None else site.fact(1).elements
    if dims is None or pads is None:
        yield Fact(None if dims is None else (None,) * len(dims))
        return
    axes = axes_of(site, 3, len(dims)) if site.has(3) else list(range(len(dims)))
    if axes is None or len(pads) != 2 * len(axes):
        yield Fact((None,) * len(dims))
        return
    result = list(dims)
    is_reflection = site.text("mode", "constant") == "reflect"
    for position, axis in enumerate(axes):
        before, after = (site.sizes.read(pads[position + offset]) for offset in (0, len(axes)))
        result[axis] = _sum([dims[axis], before, after])
        if is_reflection and all(isinstance(each, np.ndarray) for each in (dims[axis], before, after)):
            longest = np.maximum(before, after)  # type: ignore[arg-type]
            site.require(longest < dims[axis], f"a size above its reflected padding in axis {axis}")
    yield Fact(tuple(result))


RULES: dict[str, Rule] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
}

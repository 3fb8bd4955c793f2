"""Choose values for the inputs that say how an operator works: shapes, axes, pads, counts, bounds.

A rule proposes joint values for all such inputs of one node, best first. Proposals that give the sizes that the file
declares for the output come before the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.samples.shapes.analysis import Site, Sizes
from onnxport.samples.shapes.fact import Fact, fixed, fixed_elements, of_constant
from onnxport.samples.shapes.rules import RULES

# Input of the node -> its value.
Choice = dict[int, Array]
Rule = Callable[["Settings"], Iterable[Choice]]

# Operators whose first input is a setting; that of the others is data.
_WITHOUT_DATA = frozenset(
    "Range ConstantOfShape HannWindow HammingWindow BlackmanWindow MelWeightMatrix Loop".split()
)
_MOST = 64  # proposals that are compared with the declared sizes


class Settings(Site):
    """A node some of whose settings are free.

    Args:
        random: where proposals are drawn from.
    """

    def __init__(self, node: ir.Node, facts: list[Fact], sizes: Sizes, random: np.random.Generator) -> None:
        super().__init__(node, facts, sizes)
        self.random = random

    def shape(self, index: int) -> tuple[int, ...] | None:
        """Return the sizes of an input; None where they are not all known."""
        dims = [fixed(dim) for dim in self.dims(index) or ()]
        if self.dims(index) is None or None in dims:
            return None
        return tuple(dim for dim in dims if dim is not None)

    def count(self, index: int) -> int:
        """Return the number of elements of an input of settings."""
        shape = self.shape(index)
        return 1 if shape is None else math.prod(shape)

    def values(self, index: int) -> list[int] | None:
        """Return an input's integers where they are known."""
        return fixed_elements(self.fact(index)) if self.has(index) else None

    def is_free(self, index: int) -> bool:
        """Return whether an input is there and its values are not all known."""
        elements = self.fact(index).elements
        return self.has(index) and (elements is None or any(each is None for each in elements))

    @property
    def result(self) -> tuple[int | None, ...] | None:
        """The declared sizes of the first output."""
        shape = self.node.outputs[0].shape
        return None if shape is None else tuple(dim if isinstance(dim, int) else None for dim in shape)


def setting_inputs(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs of a node that say how it works; none for operators without a rule."""
    if node.op_type not in PARAMETERS:
        return ()
    return node.inputs if node.op_type in _WITHOUT_DATA else node.inputs[1:]


def propose(settings: Settings, turn: int) -> Choice:
    """Return the values of the free settings of a node for the set number `turn`; empty for none."""
    rule = PARAMETERS.get(settings.node.op_type)
    if rule is None:
        return {}
    choices = [
        {index: value for index, value in choice.items() if settings.is_free(index)}
        for choice in itertools.islice(rule(settings), _MOST)
    ]
    choices = [choice for choice in choices if choice]
    fitting = [choice for choice in choices if _fits(settings, choice)]
    chosen = fitting or choices
    return chosen[turn % len(chosen)] if chosen else {}


def _fits(settings: Settings, choice: Choice) -> bool:
    """Return whether a proposal gives the declared sizes, and breaks no demand of the node itself."""
    shape_rule, declared = RULES.get(settings.node.op_type), settings.result
    if shape_rule is None:
        return True
    facts = [
        of_constant(choice[index]) if index in choice else fact for index, fact in enumerate(settings.facts)
    ]
    sizes = Sizes({})
    found = next(iter(shape_rule(Site(settings.node, facts, sizes))), Fact())
    if any(not constraint.holds.all() for constraint in sizes.constraints):
        return False
    if found.dims is None or declared is None:
        return True
    dims = [fixed(dim) for dim in found.dims]
    if any(dim == 0 for dim in dims):
        return 0 in declared
    return len(dims) == len(declared) and all(
        ours is None or theirs is None or ours == theirs for ours, theirs in zip(dims, declared, strict=True)
    )


def _integers(values: Iterable[int]) -> Array:
    return np.array(list(values), np.int64)


def _reshape(at: Settings) -> Iterator[Choice]:
    shape, count, declared = at.shape(0), at.count(1), at.result
    if declared is not None and len(declared) == count and None not in declared:
        yield {1: _integers(dim or 0 for dim in declared)}
    if shape is None:
        yield {1: _integers([*[1] * (count - 1), -1])}
        return
    for _ in range(8):
        target = _factors(at.random, math.prod(shape), count)
        yield {1: _integers(target)}
        if count:
            target[int(at.random.integers(count))] = -1
            yield {1: _integers(target)}


def _factors(random: np.random.Generator, total: int, count: int) -> list[int]:
    """Write a number as a product of `count` factors."""
    factors = [1] * count
    rest, prime = total, 2
    while rest > 1 and count:
        while rest % prime:
            prime += 1
        factors[int(random.integers(count))] *= prime
        rest //= prime
    return factors


def _expand(at: Settings) -> Iterator[Choice]:
    shape, count, declared = at.shape(0), at.count(1), at.result
    if declared is not None and len(declared) == count and None not in declared:
        yield {1: _integers(dim or 0 for dim in declared)}
    if shape is None:
        return
    aligned = (1,) * (count - len(shape)) + shape[-count:] if count else ()
    for _ in range(8):
        grown = at.random.integers(1, 5, count)
        yield {1: _integers(int(new) if old == 1 else old for old, new in zip(aligned, grown, strict=True))}


def _tile(at: Settings) -> Iterator[Choice]:
    for repeats in _tuples(at, at.count(1), 1, 4):
        yield {1: repeats}


def _tuples(at: Settings, count: int, low: int, high: int) -> Iterator[Array]:
    """Yield vectors of integers in low..high-1: all of them if they are few, else drawn ones."""
    if (high - low) ** count <= _MOST:
        vectors = [_integers(each) for each in itertools.product(range(low, high), repeat=count)]
        yield from (vectors[place] for place in at.random.permutation(len(vectors)))
        return
    for _ in range(_MOST):
        yield at.random.integers(low, high, count)


def _pad(at: Settings) -> Iterator[Choice]:
    shape = at.shape(0)
    rank = len(shape) if shape is not None else at.count(1) // 2
    declared, count = at.result, at.count(1)
    value = np.asarray(1.5 if _is_float(at, 2) else 3)
    axes = _integers(at.random.permutation(rank)[: count // 2]) if at.is_free(3) else None
    about: Choice = {2: value} if axes is None else {2: value, 3: axes}
    if (
        shape is not None
        and declared is not None
        and None not in declared
        and count == 2 * rank
        and axes is None
    ):
        for share in (0, 1, 2):
            grown = [(new or 0) - old for old, new in zip(shape, declared, strict=True)]
            before = [grow if share == 1 else grow // 2 if share == 0 else 0 for grow in grown]
            yield {
                1: _integers([*before, *(grow - first for grow, first in zip(grown, before, strict=True))]),
                **about,
            }
    for pads in _tuples(at, count, 0, 3):
        yield {1: pads, **about}


def _slice(at: Settings) -> Iterator[Choice]:
    shape = at.shape(0)
    if shape is None:
        return
    count = at.count(1)
    for _ in range(_MOST):
        given = at.values(3) if at.has(3) and not at.is_free(3) else None
        axes = given or (
            at.random.permutation(len(shape))[:count].tolist() if at.has(3) else list(range(count))
        )
        starts: list[int] = []
        ends: list[int] = []
        steps: list[int] = []
        for axis in axes:
            extent = shape[axis]
            step = int(at.random.choice([1, 1, 1, 2, -1])) if at.has(4) else 1
            known = at.values(4) if not at.is_free(4) else None
            step = known[len(steps)] if known else step
            low = int(at.random.integers(0, max(extent // 2, 1)))
            high = int(at.random.integers(low + 1, extent + 1)) if extent > low else extent
            starts.append(low if step > 0 else high - 1)
            ends.append(high if step > 0 else low - 1 if low else -extent - 1)
            steps.append(step)
        yield {1: _integers(starts), 2: _integers(ends), 3: _integers(axes), 4: _integers(steps)}


def _split(at: Settings) -> Iterator[Choice]:
    shape, count = at.shape(0), at.count(1)
    if not shape:
        return
    extent = shape[at.integer("axis", 0)]
    declared = [value.shape for value in at.node.outputs]
    axis = at.integer("axis", 0)
    sizes = [each[axis] if each is not None else None for each in declared]
    if len(sizes) == count and all(isinstance(each, int) for each in sizes):
        yield {1: _integers(int(each) for each in sizes)}  # type: ignore[arg-type]
    for _ in range(8):
        cuts = np.sort(at.random.integers(0, extent + 1, count - 1))
        yield {1: np.diff(np.concatenate([[0], cuts, [extent]]))}


def _squeeze(at: Settings) -> Iterator[Choice]:
    shape, count = at.shape(0), at.count(1)
    if shape is not None:
        ones = [axis for axis, dim in enumerate(shape) if dim == 1]
        yield from ({1: _integers(axes)} for axes in itertools.combinations(ones, count))


def _unsqueeze(at: Settings) -> Iterator[Choice]:
    shape, count = at.shape(0), at.count(1)
    if shape is not None:
        yield from _axes(at, len(shape) + count, count, 1)


def _axes(at: Settings, rank: int, count: int, index: int) -> Iterator[Choice]:
    """Propose sets of axes, also negative ones."""
    for axes in itertools.combinations(range(rank), count):
        yield {index: _integers(axes)}
        yield {index: _integers(axis - rank for axis in axes)}


def _reduction(at: Settings) -> Iterator[Choice]:
    shape = at.shape(0)
    if shape is not None:
        yield from _axes(at, len(shape), min(at.count(1), len(shape)), 1)


def _axis(index: int) -> Rule:
    def rule(at: Settings) -> Iterator[Choice]:
        shape = at.shape(0)
        for axis in range(len(shape or ())):
            yield {index: np.full(at.shape(index) or (), axis, np.int64)}
            yield {index: np.full(at.shape(index) or (), axis - len(shape or ()), np.int64)}

    return rule


def _top_k(at: Settings) -> Iterator[Choice]:
    shape = at.shape(0)
    extent = shape[at.integer("axis", -1)] if shape else 1
    yield from ({1: _integers([count])} for count in range(1, extent + 1))


def _one_hot(at: Settings) -> Iterator[Choice]:
    indices, declared = at.shape(0), at.result
    off_on = np.array([2, 5])
    depth = None
    if declared is not None and indices is not None:
        depth = declared[at.integer("axis", -1) % (len(indices) + 1)]
    shape = at.shape(1) or ()
    for each in (depth,) if depth else (10, 5, 12, 7):
        yield {1: np.full(shape, each), 2: off_on}


def _range(at: Settings) -> Iterator[Choice]:
    declared = at.result
    lengths = [declared[0]] if declared and declared[0] else [5, 11, 8, 3]
    starts = (1.0, 6.0, 0.5) if _is_float(at, 0) else (1, 10, 0)
    for length in lengths:
        for start, delta in zip(starts, (2, -3, 1), strict=True):
            first, step = _number(at, 0, start), _number(at, 2, delta)
            yield {0: np.asarray(first), 1: np.asarray(first + step * (length or 1)), 2: np.asarray(step)}


def _number(at: Settings, index: int, proposed: float) -> float:
    """Return a known scalar, else the proposed one."""
    known = at.fact(index).elements
    return float(known[0][0]) if known and isinstance(known[0], np.ndarray) else proposed


def _shape_of_constant(at: Settings) -> Iterator[Choice]:
    declared, count = at.result, at.count(0)
    if declared is not None and len(declared) == count and None not in declared:
        yield {0: _integers(dim or 0 for dim in declared)}
    yield from ({0: each} for each in _tuples(at, count, 1, 6))


def _resize(at: Settings) -> Iterator[Choice]:
    shape = at.shape(0)
    if shape is None:
        return
    axes = at.integers("axes") or list(range(len(shape)))
    declared = at.result
    roi = np.array([0.25] * len(axes) + [0.75] * len(axes), np.float32)
    sizes_at, scales_at = (3, 2) if len(at.node.inputs) > 2 else (None, 1)
    targets = (
        [tuple(declared[axis] for axis in axes)] if declared is not None and None not in declared else []
    )
    for factor in (2.0, 0.5, 1.5, 3.0):
        # Batch and channels stay, where all axes are given.
        factors = [factor if axis >= 2 or len(shape) < 4 else 1.0 for axis in axes]
        targets.append(tuple(max(1, int(shape[axis] * by)) for axis, by in zip(axes, factors, strict=True)))
    for target in targets:
        sizes = [each or 1 for each in target]
        scales = np.array(
            [_scale_to(shape[axis], new) for axis, new in zip(axes, sizes, strict=True)], np.float32
        )
        choice: Choice = {1: roi} if sizes_at else {}
        if sizes_at and at.has(sizes_at):
            yield choice | {sizes_at: _integers(sizes)}
        else:
            yield choice | {scales_at: scales}


def _scale_to(old: int, new: int) -> float:
    """Return a scale that floors to `new` also after rounding to float32."""
    return new / old if new % old == 0 or old % new == 0 else (new + 0.25) / old


def _center_crop_pad(at: Settings) -> Iterator[Choice]:
    shape, declared = at.shape(0), at.result
    if shape is None:
        return
    axes = [axis % len(shape) for axis in at.integers("axes") or range(len(shape))]
    if declared is not None and None not in declared:
        yield {1: _integers(declared[axis] or 1 for axis in axes)}
    for changes in _tuples(at, len(axes), -2, 3):
        yield {1: _integers(max(1, shape[axis] + int(by)) for axis, by in zip(axes, changes, strict=True))}


def _columns_to_image(at: Settings) -> Iterator[Choice]:
    shape, declared, count = at.shape(0), at.result, at.count(1)
    if shape is None:
        return
    strides, dilations = (at.integers(name) or [1] * count for name in ("strides", "dilations"))
    pads = at.integers("pads") or [0] * 2 * count
    images = [declared[-count:]] if declared is not None and None not in declared[-count:] else []
    images += list(itertools.product(range(1, 13), repeat=count)) if count < 3 else []
    for image in images:
        for block in itertools.product(range(1, 7), repeat=count):
            if shape[1] % math.prod(block):
                continue
            windows = [
                (
                    (image[axis] or 0)
                    + pads[axis]
                    + pads[axis + count]
                    - dilations[axis] * (block[axis] - 1)
                    - 1
                )
                // strides[axis]
                + 1
                for axis in range(count)
            ]
            if min(windows) > 0 and math.prod(windows) == shape[2]:
                yield {1: _integers(dim or 1 for dim in image), 2: _integers(block)}


def _clip(at: Settings) -> Iterator[Choice]:
    for low, high in ((-1.0, 1.0), (-0.5, 2.0), (0.0, 6.0)) if _is_float(at, 0) else ((2, 7), (1, 5), (0, 6)):
        yield {1: np.asarray(low), 2: np.asarray(high)}


def _scalars(*choices: Sequence[tuple[int, float]]) -> Rule:
    """Propose fixed numbers: (input, number)..."""

    def rule(at: Settings) -> Iterator[Choice]:
        for choice in choices:
            yield {index: np.full(at.shape(index) or (), number) for index, number in choice}

    return rule


def _stft(at: Settings) -> Iterator[Choice]:
    shape, window = at.shape(0), at.shape(2) if at.has(2) else None
    declared = at.result
    if not shape or len(shape) < 2:
        return
    lengths = (
        [window[0]] if window else [2 * ((declared[2] or 2) - 1)] if declared and len(declared) > 2 else []
    )
    for length in [*lengths, 16, 8, 32]:
        for step in range(1, length + 1):
            yield {1: np.asarray(step), 3: np.asarray(length)}


def _dft(at: Settings) -> Iterator[Choice]:
    shape, declared = at.shape(0), at.result
    if shape is None:
        return
    for axis in range(1, len(shape) - 1):
        for place in (axis, axis - len(shape)):
            onesided = at.integer("onesided", 0)
            wanted = declared[axis] if declared is not None else None
            length = shape[axis] if wanted is None or onesided else wanted
            others = [each for each in range(len(shape)) if each != axis]
            if declared is None or all(declared[each] == shape[each] for each in others[:-1]):
                yield {1: np.asarray(length), 2: np.asarray(place)}


def _window(at: Settings) -> Iterator[Choice]:
    declared = at.result
    for length in [declared[0]] if declared and declared[0] else [10, 7, 16]:
        yield {0: np.asarray(length)}


def _mel(at: Settings) -> Iterator[Choice]:
    declared = at.result
    rows, columns = declared if declared is not None and len(declared) == 2 else (None, None)
    length = 2 * ((rows or 9) - 1)
    yield {
        0: np.asarray(columns or 8),
        1: np.asarray(length),
        2: np.asarray(8192),
        3: np.asarray(0.0),
        4: np.asarray(4096.0),
    }


def _affine_grid(at: Settings) -> Iterator[Choice]:
    theta, declared, count = at.shape(0), at.result, at.count(1)
    batch = theta[0] if theta else 1
    spatial = [dim or 4 for dim in declared[1:-1]] if declared else [5, 6, 4][: count - 2]
    yield {1: _integers([batch, 3, *spatial])}


def _max_unpool(at: Settings) -> Iterator[Choice]:
    declared = at.result
    if declared is not None and None not in declared:
        yield {2: _integers(dim or 1 for dim in declared)}


def _boxes_kept(at: Settings) -> Iterator[Choice]:
    for most, overlap, score in ((3, 0.5, 0.25), (2, 0.25, 0.5), (4, 0.75, 0.0)):
        yield {
            2: np.full(at.shape(2) or (), most),
            3: np.full(at.shape(3) or (), overlap),
            4: np.full(at.shape(4) or (), score),
        }


def _is_float(at: Settings, index: int) -> bool:
    value = at.node.inputs[index] if at.has(index) else None
    return value is not None and value.dtype is not None and value.dtype.is_floating_point()


PARAMETERS: dict[str, Rule] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "SplitToSequence": _split,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    **dict.fromkeys(
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
        "ReduceSumSquare".split(),
        _reduction,
    ),
    "CumSum": _axis(1),
    "TopK": _top_k,
    "OneHot": _one_hot,
    "Range": _range,
    "ConstantOfShape": _shape_of_constant,
    "Resize": _resize,
    "Upsample": _resize,
    "CenterCropPad": _center_crop_pad,
    "Col2Im": _columns_to_image,
    "Clip": _clip,
    "Trilu": _scalars([(1, 0)], [(1, 1)], [(1, -1)], [(1, 2)]),
    "Dropout": _scalars([(1, 0.5), (2, 0)]),
    "STFT": _stft,
    "DFT": _dft,
    "HannWindow": _window,
    "HammingWindow": _window,
    "BlackmanWindow": _window,
    "MelWeightMatrix": _mel,
    "AffineGrid": _affine_grid,
    "MaxUnpool": _max_unpool,
    "NonMaxSuppression": _boxes_kept,
    "Loop": _scalars([(0, 5), (1, 1)], [(0, 3), (1, 1)]),
}

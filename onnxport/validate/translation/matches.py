"""Match two graphs by data flow, from the outputs back to the inputs.

An output of the artefact has to be what the source's output of the same name is. Two values are the same if what
follows their cores agrees, their cores are the same operator with the same settings and constants, and the operands of
the cores are the same values again. Each such pair is visited once. Without a mismatch every node that reaches an
output has been compared; behind a mismatch nothing is known, and the report says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.validate.translation.absorption import absorb, behind_view
from onnxport.validate.translation.axes import (
    AXES,
    broadcast_alike,
    is_same_choice,
    long_sizes,
    of_other_ranks,
)
from onnxport.validate.translation.elementwise_tails import (
    About,
    compare_tails,
    follows,
    follows_alike,
    steps,
    without_bounds_of_grids,
)
from onnxport.validate.translation.fingerprints import Fingerprints
from onnxport.validate.translation.forms import Core, Head
from onnxport.validate.translation.hard_swish import as_hard_swish
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.operators import COMMUTATIVE, Operand, static_shape
from onnxport.validate.translation.rounding_bounds import (
    FLOAT_NOISE,
    MOST_CUT,
    NOTHING,
    ONE,
    Rounded,
    beyond_half_step,
    cut_share,
    is_cut,
    is_inside,
)

# A factor of an operand is a factor of the result.
_MULTIPLIES = frozenset({"Mul", "MatMul"})
_VIEWS = frozenset({"Reshape", "Transpose"})
_MOST_NESTED = 16  # products of products whose factors are looked for


@dataclass(frozen=True)
class Match:
    """A value of the artefact and the source's value that it is.

    Attributes:
        value, original: the values; `head` and `source` are their normal forms.
        product, of_source: for products the cores whose weights and biases are compared; both read the artefact's
            values, where these differ from the source's by a factor and a shift.
        operand: the pair that a product reads.
        factor: of each channel of the operand: the artefact's value by the source's.
        multiple: the artefact's value by the source's, where a product of both has the factor elsewhere; `source` has
            it already.
    """

    value: ir.Value
    original: ir.Value
    head: Head
    source: Head
    product: Core | None = None
    of_source: Core | None = None
    operand: tuple[ir.Value, ir.Value] | None = None
    factor: Array = field(default_factory=lambda: np.ones(1))
    multiple: float = 1.0

    def convert(self, values: Array) -> Array:
        """Return the source's values in units of the artefact's."""
        ours, theirs = self.head, self.source
        values = values if self.multiple == 1.0 else values * self.multiple
        if follows_alike(ours, theirs):
            return values
        core = (values - theirs.shift.values) / theirs.scale.values
        return np.asarray(core * ours.scale.values + ours.shift.values)


@dataclass(frozen=True)
class Mismatch:
    """Two values that should be the same and are not.

    Attributes:
        core: of the artefact; `source` is the source's.
        pair: these values.
        reason: what differs.
        is_structure: whether nodes before them were not compared; else this one setting differs.
        is_near: whether roundings one after the other might explain it.
        about: what differs: the operator, a setting or operand of it, or a factor, shift or bound behind it.
    """

    core: Core
    source: Core
    pair: tuple[ir.Value, ir.Value]
    reason: str
    is_structure: bool
    is_near: bool = False
    about: About = "setting"

    def __str__(self) -> str:
        return f"{self.core.label}: {self.reason}"


@dataclass
class Matching:
    """The result for two graphs.

    Attributes:
        matches: in the order in which they were found.
        readers: a pair of values to the pairs that read it.
        views: pairs of Reshape whose sizes the graphs do not tell.
    """

    matches: list[Match] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    views: list[tuple[Core, Core]] = field(default_factory=list)
    readers: dict[tuple[ir.Value, ir.Value], list[tuple[ir.Value, ir.Value]]] = field(default_factory=dict)

    @cached_property
    def unsure(self) -> frozenset[tuple[ir.Value, ir.Value]]:
        """The pairs that are computed from values which do not match: they may be pairs by mistake."""
        pending = [each.pair for each in self.mismatches if each.is_structure]
        found = set(pending)
        while pending:
            for reader in self.readers.get(pending.pop(), ()):
                if reader not in found:
                    found.add(reader)
                    pending.append(reader)
        return frozenset(found)


def match_named_values(candidate: Graph, source: Graph, known: Matching) -> Matching:
    """Match what stands in front of mismatches: from the values of one name on that `known` has not reached."""
    ours = {value.name: value for node in candidate.model.graph for value in node.outputs if value.name}
    reached = {each.original for each in known.matches} | {each.pair[1] for each in known.mismatches}
    found, matcher = Matching(), _Matcher(candidate, source)
    for node in reversed(source.model.graph):
        for value in node.outputs:
            if value not in reached and value.name in ours:
                found = matcher.go_on(ours[value.name], value)
                reached.update(each.original for each in found.matches)
    return found


def match_graphs(candidate: Graph, source: Graph, outputs: Mapping[str, str] | None = None) -> Matching:
    """Match every output of `candidate` with the output of `source` of the same name.

    Args:
        outputs: the candidate's name for an output, by the source's name, where they differ.
    """
    return _Matcher(candidate, source).run(outputs or {})


@dataclass(frozen=True)
class _Pair:
    """Two values that have to be the same.

    Attributes:
        is_absorbed: whether the product that reads them makes up for another factor or shift.
        multiple: what the artefact's value is times the source's.
        is_viewed: whether axes of size 1 mean nothing to what reads them.
    """

    value: ir.Value
    original: ir.Value
    is_absorbed: bool = False
    multiple: float = 1.0
    is_viewed: bool = False


class _Matcher:
    def __init__(self, candidate: Graph, source: Graph) -> None:
        self._candidate, self._source = candidate, source
        self._prints = Fingerprints(candidate), Fingerprints(source)
        self._found = Matching()
        self._seen: set[_Pair] = set()
        self._pending: list[_Pair] = []
        self._factors_of: dict[tuple[ir.Value, ir.Value], float] = {}

    def run(self, outputs: Mapping[str, str]) -> Matching:
        theirs = self._candidate.outputs
        for name, value in self._source.outputs.items():
            if (ours := theirs.get(outputs.get(name, name))) is None:
                core = self._source.head(value).core
                reason = f"the output {name!r} is missing, or has another name"
                self._found.mismatches.append(Mismatch(core, core, (value, value), reason, is_structure=True))
                continue
            self._pending.append(_Pair(ours, value))
        return self._finish()

    def go_on(self, value: ir.Value, original: ir.Value) -> Matching:
        """Match one more pair, and what stands before it."""
        self._pending.append(_Pair(value, original))
        return self._finish()

    def _finish(self) -> Matching:
        while self._pending:
            pair = self._pending.pop()
            if pair not in self._seen:
                self._seen.add(pair)
                self._compare(pair)
        return self._found

    def _compare(self, pair: _Pair) -> None:
        pair = self._without_views_of_ones(pair)
        head, source = self._heads(pair)
        operands = self._operands(head.core, source.core, pair.is_viewed)
        where = pair.value, pair.original
        if isinstance(operands, str):
            about: About = "operator" if head.core.op != source.core.op else "setting"
            self._found.mismatches.append(
                Mismatch(head.core, source.core, where, operands, is_structure=True, about=about)
            )
            return
        is_view = _is_view(head) and _is_view(source)
        factors = [pair.multiple] * len(operands) if is_view else self._factors(head, operands)
        if head.core.weight is not None:
            head = _with_weights_times(head, factors[0])
        elif not is_view:
            head = _times(head, factors)
        match = Match(
            pair.value, pair.original, without_bounds_of_grids(head), source, multiple=pair.multiple
        )
        match, absorbs = self._product(match, operands, factors)
        self._found.matches.append(match)
        for reason, is_near, kind in compare_tails(
            match.head, source, pair.is_absorbed, self._source.rounding
        ):
            found = Mismatch(head.core, source.core, where, reason, False, is_near, kind)
            self._found.mismatches.append(found)
        for each in operands:
            self._found.readers.setdefault(each, []).append((pair.value, pair.original))
        is_viewed = head.core.op == "Reshape" or broadcast_alike(head.core, source.core)
        # What a view shows of a pair whose factors a product makes up for is such a pair, too.
        absorbs = absorbs or (is_view and pair.is_absorbed)
        pairs = [
            _Pair(*each, absorbs, factor, is_viewed) for each, factor in zip(operands, factors, strict=True)
        ]
        self._pending += reversed(pairs)

    def _without_views_of_ones(self, pair: _Pair) -> _Pair:
        """Return the pair before a Reshape that adds or drops axes of size 1, where only one side has it.

        These axes mean nothing where both values have the same sizes, or where what reads them does not tell.
        """
        sizes = static_shape(pair.value)
        if not pair.is_viewed and (sizes is None or sizes != static_shape(pair.original)):
            return pair
        if self._source.head(pair.original).core.op != "Reshape":
            while (before := _before_ones(self._candidate.head(pair.value))) is not None:
                pair = replace(pair, value=before)
        elif self._candidate.head(pair.value).core.op != "Reshape":
            while (before := _before_ones(self._source.head(pair.original))) is not None:
                pair = replace(pair, original=before)
        return pair

    def _heads(self, pair: _Pair) -> tuple[Head, Head]:
        """Return the normal forms of both values, in the same operators where that is possible."""
        head, source = self._candidate.head(pair.value), self._source.head(pair.original)
        if pair.multiple != 1.0 and not (_is_view(head) and _is_view(source)):
            source = self._source.head(pair.original, pair.multiple)
        return self._rewritten(head, source)

    def _aligned(self, pair: _Pair) -> tuple[Head, Head]:
        """Return the normal forms of both values, of the same core if they match."""
        head, source = self._heads(pair)
        operands = self._operands(head.core, source.core)
        return (head if isinstance(operands, str) else _times(head, self._factors(head, operands))), source

    def _factors(
        self, head: Head, operands: Sequence[tuple[ir.Value, ir.Value]], depth: int = 0
    ) -> list[float]:
        """Return what each operand is times the source's, where their product has the factor elsewhere.

        Args:
            depth: of the product in others, whose operands are asked for their own operands' factors.
        """
        if head.core.weight is not None:
            return [self._factor_of_operand(*operands[0])]
        if head.core.op not in _MULTIPLIES or len(operands) != 2 or depth > _MOST_NESTED:
            return [1.0 for _ in operands]
        return [self._factor(*each, depth) for each in operands]

    def _factor_of_operand(self, value: ir.Value, original: ir.Value) -> float:
        """Return the factor of what a product reads by way of views, or of what has bounds; else 1 (absorption.py)."""
        is_seen = False
        while True:
            head, source = self._candidate.head(value), self._source.head(original)
            inner, other = (each.core.operands[:1] for each in (head, source))
            if head.core.op != source.core.op or not (_is_view(head) and _is_view(source)):
                is_bounded = bool(np.isfinite(source.low).any() or np.isfinite(source.high).any())
                return self._factor(value, original) if is_seen or is_bounded else 1.0
            if not (isinstance(inner[0], ir.Value) and isinstance(other[0], ir.Value)):
                return 1.0
            value, original, is_seen = inner[0], other[0], True

    def _factor(self, value: ir.Value, original: ir.Value, depth: int = 0) -> float:
        """Return the number that an operand is times the source's, if that is all by which they differ; else 1."""
        pair = value, original
        if (
            pair not in self._factors_of
        ):  # products of one value with itself would be asked twice for each operand
            self._factors_of[pair] = self._measure_factor(value, original, depth)
        return self._factors_of[pair]

    def _measure_factor(self, value: ir.Value, original: ir.Value, depth: int) -> float:
        head, source = self._rewritten(self._candidate.unfolded(value), self._source.unfolded(original))
        if head.core.op == source.core.op == "Mul":  # (x / 2) * y or x * (y / 2)
            operands = self._operands(head.core, source.core)
            if not isinstance(operands, str):
                head = _times(head, self._factors(head, operands, depth + 1))
        parts = (head.scale, source.scale)
        if head.core.op != source.core.op or not all(each.is_scalar and each.values.all() for each in parts):
            return 1.0
        factor = float(head.scale.values.reshape(-1)[0] / source.scale.values.reshape(-1)[0])
        is_same = bool(np.isclose(factor, 1.0, rtol=FLOAT_NOISE)) or follows(head.scale, source.scale, 0.0)
        if head.core.weight is not None and source.core.weight is not None:
            return factor if not is_same and self._is_ratio(value, original, factor) else 1.0
        shift = source.shift.times(Rounded.number(factor))
        return factor if not is_same and follows(head.shift, shift, steps(head)) else 1.0

    def _is_ratio(self, value: ir.Value, original: ir.Value, factor: float) -> bool:
        """Return whether two products' weights, with all around them, have this ratio rather than 1."""
        heads = self._candidate.head(value), self._source.head(original)
        ours, theirs = (
            head.core.weight.values if head.core.weight is not None else np.zeros(()) for head in heads
        )
        length = float(np.square(theirs).sum())
        if ours.shape != theirs.shape or not length:
            return False
        ratio = float((ours * theirs).sum()) / length
        one, other = (head.core.operands[0] for head in heads)
        if isinstance(one, ir.Value) and isinstance(other, ir.Value):
            ratio *= self._ratio_of_scales(one, other)
        return abs(ratio - factor) < abs(ratio - 1.0)

    def _ratio_of_scales(self, value: ir.Value, original: ir.Value) -> float:
        """Return the ratio of the factors behind two cores of one kind, seen through views; 1 where there is none."""
        while True:
            head, source = self._candidate.head(value), self._source.head(original)
            inner, other = (each.core.operands[:1] for each in (head, source))
            if not (_is_view(head) and _is_view(source)):
                break
            if not (isinstance(inner[0], ir.Value) and isinstance(other[0], ir.Value)):
                return 1.0
            value, original = inner[0], other[0]
        parts = head.scale, source.scale
        if head.core.op != source.core.op or not all(each.is_scalar and each.values.all() for each in parts):
            return 1.0
        return float(head.scale.values.reshape(-1)[0] / source.scale.values.reshape(-1)[0])

    def _product(
        self, match: Match, operands: Sequence[tuple[ir.Value, ir.Value]], factors: Sequence[float]
    ) -> tuple[Match, bool]:
        """Complete the match of a product; return whether it makes up for a factor and a shift of its operand."""
        core, source = match.head.core, match.source.core
        if core.weight is None or source.weight is None:
            return match, False
        (pair,) = operands
        found = replace(match, product=core, of_source=source, operand=pair, factor=np.array(factors))
        is_seen_through = core.op == "Conv" and factors == [1.0]
        head, theirs = self._behind_views(*pair) if is_seen_through else self._aligned(_Pair(*pair))
        if head.core.op != theirs.core.op:
            return found, False
        is_alike = follows_alike(head, theirs)
        absorbed = absorb(core, head, theirs)
        # A shift may be off by what a zero point rounds: then the bias may make up for it, or not.
        if absorbed is None or (is_alike and not _is_nearer(absorbed[0], core, source)):
            return found, False
        return replace(found, product=absorbed[0], factor=absorbed[1]), not is_alike

    def _behind_views(self, value: ir.Value, original: ir.Value) -> tuple[Head, Head]:
        """Return what _aligned does, of what both are views of that only add or drop axes of size 1.

        A convolution over one axis is one over two in TFLite: its channels' factors stand before such a Reshape.
        """
        inner = (value, original)
        while True:
            before = _before_ones(self._candidate.head(inner[0])), _before_ones(self._source.head(inner[1]))
            if before[0] is None or before[1] is None:
                break
            inner = (before[0], before[1])
        heads = self._aligned(_Pair(*inner))
        if inner[0] is value:
            return heads
        head, source = (
            behind_view(each, static_shape(seen) or (), static_shape(view) or ())
            for each, seen, view in zip(heads, inner, (value, original), strict=True)
        )
        return head, source

    def _rewritten(self, head: Head, source: Head) -> tuple[Head, Head]:
        """Return the normal forms with x * Clip(x + 3, 0, 6) / 6 as HardSwish, where that is what both sides are."""
        found = as_hard_swish(self._candidate, head), as_hard_swish(self._source, source)
        return found if all(each.core.op == "HardSwish" for each in found) else (head, source)

    def _operands(
        self, core: Core, source: Core, is_viewed: bool = False
    ) -> list[tuple[ir.Value, ir.Value]] | str:
        """Return the pairs of operands that have to be the same, or what differs.

        Args:
            is_viewed: see _Pair.
        """
        if core.op != source.op:
            return f"the source has {source.label} here"
        for name in sorted({*core.attributes, *source.attributes}):
            ours, theirs = core.attributes.get(name), source.attributes.get(name)
            is_equal = _equal(ours, theirs) and not (name in AXES and of_other_ranks(core, source))
            if not is_equal and not is_same_choice(name, core, source):
                return f"its {name} is {ours}, that of the source's {source.label} {theirs}"
        shape, wanted = static_shape(core.value), static_shape(source.value)
        if core.op == "Reshape" and shape is not None and wanted is not None:
            if shape != wanted and not (is_viewed and long_sizes(shape) == long_sizes(wanted)):
                return f"its shape is {shape}, that of the source's {source.label} {wanted}"
        elif core.op == "Reshape":
            self._found.views.append((core, source))
        if (core.weight is None) != (source.weight is None):
            return "one side's weight is computed"
        ours, theirs = (
            each.weight.values.shape if each.weight is not None else () for each in (core, source)
        )
        if ours != theirs:
            return f"its weight is {ours}, the source's {theirs}"
        if core.op == "Concat" and len(core.operands) != len(source.operands):
            core, source = _without_nesting(self._candidate, core), _without_nesting(self._source, source)
        if len(core.operands) != len(source.operands):
            return f"it has {len(core.operands)} operands, the source's {source.label} {len(source.operands)}"
        if self._is_permuted(core, source):
            return f"its operands are those of the source's {source.label} in another order"
        return self._pairs(core, source)

    def _pairs(self, core: Core, source: Core) -> list[tuple[ir.Value, ir.Value]] | str:
        found = []
        for place, (ours, theirs) in enumerate(self._ordered(core, source)):
            if isinstance(ours, ir.Value) and isinstance(theirs, ir.Value):
                found.append((ours, theirs))
            elif ours is None and theirs is None:
                continue
            elif isinstance(ours, Rounded) and isinstance(theirs, Rounded):
                if not agrees(ours, theirs):
                    return f"operand {place} is another constant than that of the source's {source.label}"
            else:
                return (
                    f"operand {place} is {_kind(ours)}, that of the source's {source.label} {_kind(theirs)}"
                )
        return found

    def _is_permuted(self, core: Core, source: Core) -> bool:
        """Return whether both read the same, in another order that matters."""
        ours, theirs = (
            [prints.operand(each) for each in side.operands]
            for prints, side in zip(self._prints, (core, source), strict=True)
        )
        return core.op not in COMMUTATIVE and ours != theirs and sorted(ours) == sorted(theirs)

    def _ordered(self, core: Core, source: Core) -> list[tuple[Operand, Operand]]:
        """Return the operands in pairs; those of a commutative operator by what they compute."""
        plain = list(zip(core.operands, source.operands, strict=True))
        if core.op not in COMMUTATIVE:
            return plain
        ours, theirs = (
            [prints.operand(each) for each in side.operands]
            for prints, side in zip(self._prints, (core, source), strict=True)
        )
        if ours == theirs:
            return plain
        order: dict[int, int] = {}
        # The same ones first; where none is, a fault lies before it, and the most alike are meant.
        pairs = sorted(
            itertools.product(range(len(ours)), range(len(theirs))),
            key=lambda pair: (
                ours[pair[0]] != theirs[pair[1]],
                -self._prints[0].likeness(core.operands[pair[0]], source.operands[pair[1]], self._prints[1]),
            ),
        )
        for place, other in pairs:
            if place not in order and other not in order.values():
                order[place] = other
        return [(operand, source.operands[order[place]]) for place, operand in enumerate(core.operands)]


def _is_nearer(absorbed: Core, core: Core, source: Core) -> bool:
    """Return whether one form of a product has a bias nearer to the source's than another."""
    return _bias_distance(absorbed, source) < _bias_distance(core, source)


def _bias_distance(core: Core, source: Core) -> float:
    """Return how far two biases are apart; infinity where one side has none, or of another shape."""
    if core.bias is None or source.bias is None or core.bias.values.shape != source.bias.values.shape:
        return np.inf
    return float(np.square(core.bias.values - source.bias.values).sum())


def _times(head: Head, factors: Sequence[float]) -> Head:
    """Return a head whose core is that of the source, which has not these factors."""
    return replace(head, scale=head.scale.times(Rounded.number(float(np.prod(factors)))))


def _without_nesting(graph: Graph, core: Core) -> Core:
    """Return a Concat with the operands of those that it reads, along the same axis, in their place."""
    operands: list[Operand] = []
    for each in core.operands:
        head = graph.head(each) if isinstance(each, ir.Value) else None
        is_same = head is not None and head.core.op == "Concat" and head.core.attributes == core.attributes
        if head is not None and is_same and _is_plain(head):
            operands += _without_nesting(graph, head.core).operands
        else:
            operands.append(each)
    return replace(core, operands=tuple(operands))


def _is_view(head: Head) -> bool:
    """Return whether a value is what another one is, in another shape or order, and nothing follows."""
    return head.core.op in _VIEWS and _is_plain(head)


def _is_plain(head: Head) -> bool:
    """Return whether nothing follows a core."""
    is_free = bool(np.all(np.isneginf(head.low)) and np.all(np.isposinf(head.high)))
    return head.scale is ONE and head.shift is NOTHING and is_free and not head.grids


def _before_ones(head: Head) -> ir.Value | None:
    """Return what a Reshape reads that adds or drops axes of size 1; None for all else."""
    value = head.core.operands[0] if head.core.op == "Reshape" and _is_view(head) else None
    if not isinstance(value, ir.Value):
        return None
    sizes, before = static_shape(head.core.value), static_shape(value)
    is_alike = sizes is not None and before is not None and long_sizes(sizes) == long_sizes(before)
    return value if is_alike else None


def _with_weights_times(head: Head, factor: float) -> Head:
    """Return a product of factor * x as one of x."""
    weight = head.core.weight
    if factor == 1.0 or weight is None:
        return head
    return replace(head, core=replace(head.core, weight=weight.times(Rounded.number(factor))))


def _kind(operand: Operand) -> str:
    return "missing" if operand is None else "a constant" if isinstance(operand, Rounded) else "computed"


def agrees(ours: Rounded, theirs: Rounded) -> bool:
    """Return whether two constants are equal within the half steps of the first, and float32's noise."""
    if _without_ones(ours.values.shape) != _without_ones(theirs.values.shape):
        return False
    theirs = theirs.moved(lambda values: values.reshape(ours.values.shape))
    if not (ours.is_float and theirs.is_float):
        return bool(np.array_equal(ours.values, theirs.values))
    finite = np.isfinite(ours.values) & np.isfinite(theirs.values)
    if not finite.all():
        if not np.array_equal(ours.values[~finite], theirs.values[~finite], equal_nan=True):
            return False
        ours, theirs = (each.moved(lambda values: values[finite]) for each in (ours, theirs))
    beyond = beyond_half_step(ours, theirs)
    if not beyond.any():  # what most are, and the rest takes several passes over a table of words
        return True
    cut = is_cut(ours, theirs)
    if not (~beyond & is_inside(ours)).any():
        return False
    return not (beyond & ~cut).any() and float(cut_share(ours, theirs, beyond & cut).max()) <= MOST_CUT


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without the axes of size 1 in front, which broadcasting adds."""
    first = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[first:])


def _equal(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return bool(np.isclose(ours, theirs, rtol=1e-6, atol=0))
    return ours == theirs

"""Shape rules of products and recurrences: MatMul, Gemm, Einsum, LSTM."""

from __future__ import annotations

from collections.abc import Iterator

from onnxport.samples.shapes.analysis import Rule, Site
from onnxport.samples.shapes.fact import UNKNOWN, Fact, Size, size


def _matmul(right: int) -> Rule:
    def rule(site: Site) -> Iterator[Fact]:
        first, second = site.dims(0), site.dims(right)
        if not first or not second:
            yield UNKNOWN
            return
        first = _swapped(first, site.integer("transA", 0))
        second = _swapped(second, site.integer("transB", 0))
        row, column = (
            first if len(first) > 1 else (size(1), *first),
            second if len(second) > 1 else (*second, size(1)),
        )
        site.equal(row[-1], column[-2], "the size that both factors share")
        batch = site.broadcast_all(row[:-2], column[:-2])
        assert batch is not None
        kept = (*row[-2:-1],) * (len(first) > 1) + (*column[-1:],) * (len(second) > 1)
        yield Fact((*batch, *kept))

    return rule


def _swapped(dims: tuple[Size, ...], is_transposed: int) -> tuple[Size, ...]:
    return (*dims[:-2], dims[-1], dims[-2]) if is_transposed and len(dims) > 1 else dims


def _gemm(site: Site) -> Iterator[Fact]:
    first, second = site.dims(0), site.dims(1)
    if first is None or second is None or len(first) != 2 or len(second) != 2:
        yield UNKNOWN
        return
    first, second = _swapped(first, site.integer("transA", 0)), _swapped(second, site.integer("transB", 0))
    site.equal(first[1], second[0], "the size that both factors share")
    yield Fact((first[0], second[1]))


def _recurrent(axis: int) -> Rule:
    """Make the rule of a cell whose matrices have their inputs along `axis`."""

    def rule(site: Site) -> Iterator[Fact]:
        dims, weights, recurrence = site.dims(0), site.dims(1), site.dims(2)
        if dims is None or weights is None or recurrence is None or len(dims) != 3:
            yield UNKNOWN
            return
        is_batch_first = site.integer("layout", 0) == 1
        batch, steps = dims[:2] if is_batch_first else (dims[1], dims[0])
        site.equal(dims[2], weights[axis], "the features of its weights")
        hidden, directions = recurrence[axis], weights[0]
        state = (batch, directions, hidden) if is_batch_first else (directions, batch, hidden)
        for index in (5, 6):
            given = site.dims(index)
            if given is not None and len(given) == 3:
                for ours, theirs in zip(given, state, strict=True):
                    site.equal(ours, theirs, "the sizes of its state")
        lengths = site.dims(4)
        if lengths:
            site.equal(lengths[0], batch, "a length per row")
        yield Fact(
            (batch, steps, directions, hidden) if is_batch_first else (steps, directions, batch, hidden)
        )
        yield Fact(state)
        yield Fact(state)

    return rule


def _einsum(site: Site) -> Iterator[Fact]:
    equation = site.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != len(site.facts):
        yield UNKNOWN
        return
    sizes: dict[str, Size] = {}
    for index, term in enumerate(terms):
        for letter, dim in zip(term, site.dims(index) or (), strict=False):
            sizes[letter] = site.equal(sizes.get(letter), dim, f"the size of {letter!r} in {equation}")
    yield Fact(tuple(sizes.get(letter) for letter in right))


RULES: dict[str, Rule] = {
    "MatMul": _matmul(1),
    "FusedMatMul": _matmul(1),
    "MatMulInteger": _matmul(1),
    "DynamicQuantizeMatMul": _matmul(1),
    "MatMulIntegerToFloat": _matmul(1),
    "QLinearMatMul": _matmul(3),
    "Gemm": _gemm,
    "Einsum": _einsum,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent(2)),
    "DynamicQuantizeLSTM": _recurrent(1),
}

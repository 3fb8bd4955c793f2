"""Rows of an output in the order of a TopK, which places scores within rounding either way around.

    scores, places = TopK(confidence)    detections = Gather(boxes, places)

Detectors that answer their best 300 boxes order scores far apart and scores that differ by less than rounding: two
right runtimes exchange the rows of the latter, and what one has in the last place another leaves out. So the TopKs'
places become inputs of what follows them. The noise is that of fixed places. A row of the candidate is right if it is
the row of a score that may stand there, by the tolerance of the scores, and no other row of the candidate has that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.model import Model
from onnxport.validate.graph_analysis import is_saturating
from onnxport.validate.noise_meter import Probed
from onnxport.validate.order_graph import Decided, Order, cut_decided, order_name
from onnxport.validate.tolerance import Noise, Tolerance, measure_noise

Answers = Mapping[str, Array]


class OpenProbed(Protocol):
    """See near_ties.OpenProbed."""

    def __call__(self, model: Model | None, *, is_adversarial: bool = False) -> Probed: ...


# Runs of what follows the TopKs, for the rows of other places than the reference's.
_MOST_PAGES = 64
# Places of an output times rows that may stand there.
_MOST_PAIRS = 20_000_000


@dataclass(frozen=True)
class Scores:
    """The scores that a TopK orders and their bounds in right runtimes, [..., n]; the best are the largest.

    Attributes:
        own: the reference's.
        least, most: of any right runtime.
    """

    own: Array
    least: Array
    most: Array

    def page(self, number: int, count: int) -> Array:
        """Return the places of the scores of rank `number` * `count` and the following, int64[..., count]."""
        ranked = np.argsort(-self.own, axis=-1, kind="stable")
        first = min(number * count, ranked.shape[-1] - count)
        return ranked[..., first : first + count].astype(np.int64)

    def pages(self, count: int, least: Array) -> int:
        """Return the number of pages on which a score may be above `least`, [...]; at least 1."""
        return max(-(-int((self.most >= least[..., None]).sum(axis=-1).max()) // count), 1)

    def least_kept(self, count: int) -> Array:
        """Return what a score has to reach that a runtime keeps, [...]."""
        kept: Array = np.sort(self.least, axis=-1)[..., -count]
        return kept

    def at(self, places: Array) -> tuple[Array, Array]:
        """Return the least and the most of the scores at places."""
        least, most = (np.take_along_axis(each, places, -1) for each in (self.least, self.most))
        return least, most


@dataclass(frozen=True)
class Page:
    """An output for other places than the reference's, and the scores that its rows have."""

    answer: Array
    allowed: Array
    places: Array
    scores: Scores
    is_own: bool


class OrderTies:
    """The orders behind one output.

    Args:
        model: without functions.
        open_probed: opens the model (None) and others.
    """

    def __init__(self, model: Model, name: str, orders: Sequence[Order], open_probed: OpenProbed) -> None:
        self._name, self._orders, self._open = name, orders, open_probed
        self._heads = [
            cut_decided(model, orders[:number], order.scores.name or "") if order.is_behind else None
            for number, order in enumerate(orders)
        ]
        self._output = cut_decided(model, orders, name)

    @property
    def is_known(self) -> bool:
        """Whether models of all that the orders decide were made."""
        heads = zip(self._heads, self._orders, strict=True)
        return self._output is not None and all(
            head is not None or not order.is_behind for head, order in heads
        )

    def noise(self, feeds: Feeds, tolerance: Tolerance) -> Noise:
        """Return the noise of the output while the TopKs keep the reference's order."""
        run = _Run(self, self._open(None), feeds, tolerance)
        places, _ = run.places()
        own, *probes = run.answers(places)
        return measure_noise(own, probes)

    def alternatives(
        self, answer: Array, feeds: Feeds, tolerance: Tolerance, *, is_adversarial: bool = False
    ) -> tuple[Reordered | Rest, ...]:
        """Return the rows that right runtimes may answer; none for an output that does not begin with the places."""
        run = _Run(self, self._open(None, is_adversarial=is_adversarial), feeds, tolerance)
        places, scores = run.places()
        count = places[-1].shape[-1]
        if answer.shape[: places[-1].ndim] != places[-1].shape or not count:
            return ()
        variants = list(run.variants(places, scores))
        numbers = [found.pages(count, scores[-1].least_kept(count)) for _, found, _ in variants]
        wanted = [
            (number, index)
            for number in range(max(numbers))
            for index, number_of_pages in enumerate(numbers)
            if number < number_of_pages
        ]
        pages = []
        for number, index in wanted[:_MOST_PAGES]:
            variant, found, is_own = variants[index]
            pages.append(run.page([*variant[:-1], found.page(number, count)], found, is_own=is_own))
        moved = Reordered.of(pages, scores[-1])
        return (moved,) if len(wanted) <= len(pages) else (moved, moved.rest)


class _Run:
    """The values of one set of inputs: the reference's, and its probes'."""

    def __init__(self, ties: OrderTies, whole: Probed, feeds: Feeds, tolerance: Tolerance) -> None:
        self._ties, self._feeds, self._tolerance = ties, feeds, tolerance
        heads = [head for head in (*ties._heads, ties._output) if head is not None]
        wanted = {name for head in heads for name in head.given}
        wanted |= {order.scores.name or "" for order in ties._orders if not order.is_behind}
        wanted |= {order.count for order in ties._orders if isinstance(order.count, str)}
        self._values = whole(feeds, sorted(wanted - set(feeds)))
        self._opened: dict[int, Probed] = {}
        self._noise: Noise | None = None

    def places(
        self, given: Mapping[int, Array] | None = None, like: Sequence[Scores] = ()
    ) -> tuple[list[Array], list[Scores]]:
        """Return the places that each TopK keeps, and the scores that it orders.

        Args:
            given: the places of some, by their number.
            like: scores that are as inexact, of the reference's own places.
        """
        places: list[Array] = []
        found: list[Scores] = []
        for number, order in enumerate(self._ties._orders):
            scores = self._scores(number, order, places, like[number] if like else None)
            count = (
                self._feeds_and(self._values[0])[order.count] if isinstance(order.count, str) else order.count
            )
            own = scores.page(0, int(np.ravel(count)[0]))
            places.append((given or {}).get(number, own))
            found.append(scores)
        return places, found

    def variants(
        self, places: Sequence[Array], scores: Sequence[Scores]
    ) -> Iterator[tuple[Sequence[Array], Scores, bool]]:
        """Yield the places that earlier TopKs may keep, the scores that the last one then orders, and whether they are
        the reference's own."""
        yield places, scores[-1], True
        for earlier, found in enumerate(scores[:-1]):
            kept = places[earlier].shape[-1]
            for number in range(1, min(found.pages(kept, found.least_kept(kept)), _MOST_PAGES)):
                other, of_others = self.places({earlier: found.page(number, kept)}, like=scores)
                yield other, of_others[-1], False

    def page(self, places: Sequence[Array], scores: Scores, *, is_own: bool = True) -> Page:
        """Return the output for places."""
        if self._noise is None:
            own, *probes = self.answers(places)
            self._noise = measure_noise(own, probes)
        else:
            (own,) = self.answers(places, is_alone=True)
        is_float = own.dtype.kind == "f"
        allowed = self._tolerance.allowed(self._ties._name, own, self._noise) if is_float else np.zeros(())
        return Page(own, np.broadcast_to(allowed, own.shape), places[-1], scores, is_own)

    def answers(self, places: Sequence[Array], *, is_alone: bool = False) -> list[Array]:
        """Return the output for places, the reference's and, unless it is alone, its probes'."""
        assert self._ties._output is not None, "is_known"
        return self._answers(self._ties._output, places, self._ties._name, is_alone=is_alone)

    def _scores(self, number: int, order: Order, places: Sequence[Array], like: Scores | None) -> Scores:
        name, head = order.scores.name or "", self._ties._heads[number]
        if head is None:
            answers = [self._feeds_and(each)[name] for each in self._values]
        else:
            answers = self._answers(head, places, name, is_alone=like is not None)
        own, *probes = (each if order.is_descending else -each for each in answers)
        if like is not None:
            return Scores(own, own - (like.own - like.least), own + (like.most - like.own))
        tolerance = self._tolerance
        if is_saturating(order.scores):
            tolerance = replace(tolerance, saturating=tolerance.saturating | {name})
        room = np.broadcast_to(tolerance.derived(name, own, measure_noise(own, probes)), own.shape)
        return Scores(own, own - room, own + room)

    def _answers(self, head: Decided, places: Sequence[Array], name: str, *, is_alone: bool) -> list[Array]:
        if id(head) not in self._opened:
            self._opened[id(head)] = self._ties._open(head.model)
        probed = self._opened[id(head)]
        fixed = {order_name(number): each for number, each in enumerate(places)}
        found: list[Array] = []
        for values in self._values[: 1 if is_alone else None]:
            known = self._feeds_and(values)
            feeds = {**{key: known[key] for key in head.given}, **fixed}
            # The probes of what follows the TopKs count once.
            answers = probed(feeds, (), is_alone=is_alone or bool(found))
            found += [each[name] for each in answers]
        return found

    def _feeds_and(self, values: Answers) -> dict[str, Array]:
        return {**self._feeds, **values}


@dataclass(frozen=True)
class Reordered:
    """The rows that may stand at each place of an output's order.

    Attributes:
        rows, allowed: [batch, row, element], and the absolute difference that is allowed.
        first, last: int64[batch, row], the places where a row may stand.
        shape: the output's.
        count: the number of places.
    """

    rows: Array
    allowed: Array
    first: Array
    last: Array
    shape: tuple[int, ...]
    count: int

    @classmethod
    def of(cls, pages: Sequence[Page], scores: Scores) -> Reordered:
        """Join pages; a row that two of them have counts once."""
        shape, places = pages[0].answer.shape, pages[0].places
        count, batch = places.shape[-1], int(np.prod(places.shape[:-1]))
        least, most = scores.least.reshape(batch, -1), scores.most.reshape(batch, -1)
        bounds = [page.scores.at(page.places) for page in pages]
        low, high = (
            np.concatenate([each[side].reshape(batch, count) for each in bounds], axis=1) for side in (0, 1)
        )
        foreign = np.concatenate([np.full(count, not page.is_own) for page in pages])
        # Pages of one order overlap at its end.
        keys = np.concatenate([page.places.reshape(batch, -1) for page in pages], axis=1)
        first, last = np.empty_like(keys), np.empty_like(keys)
        for at in range(batch):
            surely, possibly = np.sort(least[at]), np.sort(np.concatenate([most[at], high[at, foreign]]))
            first[at] = surely.size - np.searchsorted(surely, high[at], side="right")
            last[at] = possibly.size - np.searchsorted(possibly, low[at], side="left") - 1
            own = keys[at, ~foreign]
            again = np.setdiff1d(np.arange(own.size), np.unique(own, return_index=True)[1])
            last[at, np.flatnonzero(~foreign)[again]] = -1
        return cls(
            np.concatenate([page.answer.reshape(batch, count, -1) for page in pages], axis=1),
            np.concatenate([page.allowed.reshape(batch, count, -1) for page in pages], axis=1),
            first,
            last,
            shape,
            count,
        )

    def ratios(self, candidate: Array) -> Array:
        """See Alternative."""
        given = candidate.reshape(len(self.rows), self.count, -1)
        found = np.full(given.shape, np.inf)
        if self.count * self.rows.shape[1] <= _MOST_PAIRS:
            for at, rows in enumerate(given):
                for place in _matched([self._fitting(at, place, row) for place, row in enumerate(rows)]):
                    found[at, place] = 0.0
        return found.reshape(self.shape)

    def spread(self, accepted: Array) -> None:
        """Return None: a row in another place is compared in full."""

    @property
    def rest(self) -> Rest:
        """The last places, where rows may stand that the TopK of the reference leaves out."""
        return Rest(self.first[:, self.count :].min(axis=1), self.shape, self.count)

    def _fitting(self, batch: int, place: int, row: Array) -> Array:
        """Return the numbers of the rows that a row of the candidate equals, and that may stand at its place."""
        possible: Array = np.flatnonzero((self.first[batch] <= place) & (place <= self.last[batch]))
        rows, allowed = self.rows[batch, possible], self.allowed[batch, possible]
        fits = rows == row
        if row.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                fits |= np.abs(rows.astype(np.float64) - row.astype(np.float64)) <= allowed
            fits |= np.isnan(rows) & np.isnan(row)
        found: Array = possible[fits.all(axis=-1)]
        return found


@dataclass(frozen=True)
class Rest:
    """The last places, where more rows may stand than were computed: they are undecided.

    Attributes:
        first: int64[batch], the first of these places.
        shape: the output's.
        count: the number of places.
    """

    first: Array
    shape: tuple[int, ...]
    count: int

    def ratios(self, candidate: Array) -> Array:
        """See Alternative."""
        found = np.full(
            (len(self.first), self.count, candidate.size // (len(self.first) * self.count)), np.inf
        )
        for at, first in enumerate(self.first):
            found[at, first:] = 0.0
        return found.reshape(self.shape)

    def spread(self, accepted: Array) -> Array:
        """See Alternative."""
        return accepted


def _matched(fitting: Sequence[Array]) -> list[int]:
    """Return the places that can have one of their rows each, as many as possible."""
    taken: dict[int, int] = {}

    def place_one(start: int) -> None:
        # Augmenting paths, breadth first: each row that a place reaches, with the place that it came from.
        came, pending = dict[int, int](), [start]
        while pending:
            place = pending.pop(0)
            for row in map(int, fitting[place]):
                if row in came:
                    continue
                came[row] = place
                if row in taken:
                    pending.append(taken[row])
                    continue
                holder: dict[int, int] = {other: own for own, other in taken.items()}
                while True:
                    previous = holder.get(came[row])
                    taken[row] = came[row]
                    if previous is None or came[row] == start:
                        return
                    row = previous

    for place in range(len(fitting)):
        place_one(place)
    return sorted(taken.values())

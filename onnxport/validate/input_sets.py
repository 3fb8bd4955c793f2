"""The generated inputs of a validation, at more than one size; given_inputs.py feeds the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from onnxport.core.arrays import Feeds
from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec
from onnxport.runtimes.base import MemoryFullError, RunError
from onnxport.samples.generator import COMPANIONS, FURTHER_KINDS, KINDS, SEARCHED, FloatKind, generate
from onnxport.samples.input_domains import InputDomains
from onnxport.samples.sample import Sample
from onnxport.samples.sizes import OpenSizes, Shapes
from onnxport.validate.input_search import search
from onnxport.validate.params import GENERATED
from onnxport.validate.size_search import Search

# Makes or reads one set of inputs; called again it gives the same set.
Loader = Callable[[], Sample]
# Runs the reference on a set, with the seconds that one run may take, None for no limit. Raises RunError when the model
# refuses the sizes, MemoryFullError when it takes too much memory.
Try = Callable[[Loader, float | None], None]

_ATTEMPTS = 6  # with other values of one size
_APART = 1001  # between the numbers of these sets; odd, so that of two choices the other one comes
BATCH = 3  # of the sets that are not of batch 1
ROWS = 256  # of a table: trees have many branches
# Further sets at the other sizes, for outputs that none at the first sizes moves: x - x^T is 0 for one row.
_FURTHER_SIZED: Sequence[FloatKind] = ("normal", "uniform", "scaled")


class GeneratedInputs:
    """Generated sets of inputs for a model.

    First come sets of every kind at one size and batch 1, and others at another size and batch 3 where the model leaves
    these open (for a table many rows, then one). Adversarial companions follow, then a few more sets while all prove
    nothing about some output.

    Args:
        inputs: the model's inputs.
        domains: the values that inputs may hold.
        seed: the user's seed.
        run: tries a set on the reference.
        sizes: the open dimensions.
        search: the search for their sizes.
    """

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        domains: InputDomains,
        seed: int,
        run: Try,
        sizes: OpenSizes,
        search: Search,
    ) -> None:
        self._inputs, self._domains, self._seed, self._run = inputs, domains, seed, run
        self._sizes, self._search = sizes, search
        is_table = domains.have("table")
        self._batch, self._other_batch = (ROWS, 1) if is_table else (1, BATCH)
        self._count, self._further = 0, 0
        self._proposed: dict[tuple[int, bool], Sequence[Shapes]] = {}
        # Sizes of the first set, and of the first at another size.
        self._accepted: Shapes | None = None
        self._other: Shapes | None = None
        self.notes: list[str] = []

    def feed(self, samples: int | None, doubtful: Callable[[], bool], blind: Callable[[], bool]) -> None:
        """Run the sets: `samples` at batch 1, and further ones while `doubtful` or, at batch 3, `blind` is true.

        The larger sets come early: the first two decide whether an optimizer's pass may stay (Judge.differs).
        """
        planned = samples or GENERATED
        usual = self._proposals(self._batch)
        shapes = self._first_accepted(KINDS[0], chain(usual, self._sizes.longer()))
        for number in range(max(1, planned // GENERATED) if self._sizes.is_open else 0):
            self._feed_another_size(_kind(number), shapes)
        for number in range(1, planned):
            self._first_accepted(_kind(number), [shapes, *self._proposals(self._batch)])
        for other in KINDS[1:]:
            if blind():
                self._feed_another_size(other, shapes)
        for kind in COMPANIONS if self._inputs else ():
            self._feed_companion(kind, shapes)
        self._accepted = shapes
        while doubtful() and self.feed_further():
            pass

    def feed_further(self) -> bool:
        """Run one more set than planned; return False when there have been enough."""
        plan = [(kind, self._accepted) for kind in FURTHER_KINDS]
        plan += [(kind, self._other) for kind in _FURTHER_SIZED]
        if self._further == len(plan) or not self._inputs:
            return False
        kind, shapes = plan[self._further]
        if shapes is None:
            return False
        self._further += 1
        self._first_accepted(kind, [shapes, *self._proposals(self._batch)])
        return True

    def search(self, doubtful: Callable[[], bool], rate: Callable[[Feeds], float]) -> None:
        """Run what a search finds while the sets so far prove nothing about some output.

        Args:
            rate: how far inputs move such outputs; 0 where the model refuses them.
        """
        if self._accepted is None or not any(spec.dtype.startswith("float") for spec in self._inputs):
            return
        draw = partial(self._draw, self._accepted)
        for feeds in search(draw, rate, self._seed):
            label = f"set {self._count + 1} ({SEARCHED})"
            with suppress(RunError, MemoryFullError):
                self._run(partial(Sample, label, feeds, "generated"), None)
                self._count += 1
            if not doubtful():
                return

    def _draw(self, shapes: Shapes, number: int) -> Feeds:
        return self._sample(self._count + _APART + number, SEARCHED, shapes).feeds

    def _proposals(self, batch: int, *, odd: bool = False) -> Sequence[Shapes]:
        """Return the proposed sizes, which are solved for once."""
        if (batch, odd) not in self._proposed:
            self._proposed[batch, odd] = tuple(self._sizes.proposals(batch, odd=odd))
        return self._proposed[batch, odd]

    def _feed_another_size(self, kind: FloatKind, shapes: Shapes) -> None:
        """Run a set at another batch and at other sizes that the model accepts, preferably odd ones."""
        batch = self._other_batch if self._sizes.has_batch else 1
        proposed = self._proposals(batch)
        odd = [each for each in self._proposals(batch, odd=True) if each not in proposed]
        before = self._proposals(self._batch)
        used = before.index(shapes) if shapes in before else 0
        others = [*odd, *proposed[used + 1 :], *proposed[: used + 1]]
        try:
            other = self._first_accepted(kind, chain(others, self._of_same_batch(batch)))
            self._other = self._other or other
        except (UsageError, MemoryFullError) as refusal:
            self.notes.append(f"the reference ran at one size only: {refusal.why}")

    def _of_same_batch(self, other: int) -> Iterator[Shapes]:
        """Yield odd sizes at the batch of the first sets, for a model that refuses the `other` one."""
        if other != self._batch:
            yield from self._proposals(self._batch, odd=True)

    def _feed_companion(self, kind: FloatKind, shapes: Shapes) -> None:
        """Run an adversarial companion; a model may refuse it, as for a division by zero."""
        try:
            self._run(partial(self._sample, self._count, kind, shapes), None)
        except (RunError, MemoryFullError):
            return
        self._count += 1

    def _first_accepted(self, kind: FloatKind, proposals: Iterable[Shapes]) -> Shapes:
        """Run the next set at the first of the proposed sizes that the model accepts."""
        for shapes in self._search.proposals(proposals):
            for attempt in range(_ATTEMPTS):
                index = self._count + attempt * _APART
                run = partial(self._run, partial(self._sample, index, kind, shapes))
                if self._search.accepts(shapes, run):
                    self._count += 1
                    return shapes
                # Other values help where the sizes are fixed, or where the refusal says which values.
                if not self._domains.narrow(self._search.refusal) and self._sizes.is_open:
                    break
        raise self._search.failed()

    def _sample(self, index: int, kind: FloatKind, shapes: Shapes) -> Sample:
        inputs = {spec.name: (spec, shapes[spec.name]) for spec in self._inputs}
        domains = self._domains.at(shapes, self._seed, index)
        feeds = generate(inputs, domains, kind=kind, seed=self._seed, index=index)
        named = self._domains.have("real") or kind in COMPANIONS
        label = f"set {index + 1} ({kind})" if named else f"set {index + 1}"
        return Sample(label, feeds, "generated", adversarial=kind in COMPANIONS)


def _kind(number: int) -> FloatKind:
    return KINDS[number % len(KINDS)]

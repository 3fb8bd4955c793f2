"""The budget search: keep as few tensors as possible in higher precision so that the budgets are met.

1. The whole model in 8 bits is scored; where it meets the budgets, nothing is restored.
2. Every unit is ranked by its measured harm: the noise of the worst output with a budget where that unit alone is
   quantized. Of large models runs of neighbours are measured together, and the most harmful runs are halved until none
   is left or enough was measured.
3. The shortest head of that ranking that meets the budgets is restored, found by bisection; once to 16 bits, which
   leave the weights in 8, and once to float; where neither does, the shortest head that does in float while the next
   few are in 16 bits.
4. Of those found, the one with fewer units is taken. Each of its units is quantized again, the least harmful first, and
   stays so where the budgets are still met.
5. Other runtimes round otherwise what lies between two steps. Where the result, computed so, does not keep the budgets
   with room for as much again, the next of the ranking are restored, as few as suffice: one, two, four, and so on,
   then by bisection.
6. Where nothing meets the budgets, the harmful half is restored, to either, and the nearest model that has at least
   half its units in 8 bits is the result; nothing is where the float model itself misses them.

The noise of several units adds up only nearly, so every choice is scored on the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from onnxport.formats.model import Model
from onnxport.optimizers.opset import lift
from onnxport.quantize.candidate_score import Score, Scorer
from onnxport.quantize.float_graph import INT16_OPSET
from onnxport.quantize.float_part import FloatPart
from onnxport.quantize.placement import Placement

Level = Literal["16-bit", "float"]
Run = tuple[str, ...]  # units that follow each other in the graph
LEVELS: tuple[Level, ...] = ("16-bit", "float")
# Restored units that notes name; the facts have all.
_NAMED = 5
# Units of the head that are tried in 8 bits again; of models with more units than are measured one by one, the last.
_TRIED_AGAIN, _TRIED_AGAIN_OF_MANY = 24, 6
# Measurements that rank the units, and the samples of each.
_MEASURED = 48
_RANKED_ON = 3


class Space(Protocol):
    """The search space: a model some of whose units have a higher precision."""

    @property
    def units(self) -> Sequence[str]:
        """Return the names of quantized units, in the order of the graph."""

    def built(self, restored: Mapping[str, Level]) -> Model:
        """Build the quantized model with the units of `restored` in a higher precision."""


@dataclass(frozen=True)
class Restored:
    """A unit in higher precision."""

    unit: str
    level: Level
    harm: float  # SQNR in dB of the worst output when its run of units alone is quantized
    run: int = 1  # units of that run


@dataclass(frozen=True)
class SearchResult:
    """The result of the search."""

    model: Model
    restored: tuple[Restored, ...]
    score: Score
    before: Score  # the score with nothing restored
    meets: bool  # whether the budgets are kept on the samples; otherwise it is the best that was reached
    scored: int  # how many models were scored
    floats: Score | None = None  # the score with nothing in 8 bits, where even that misses the budgets

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the result and its cost, for the user."""
        if not self.restored and self.meets:
            return ()
        lines = []
        if self.floats is not None:
            lines.append(
                "no selection of nodes in higher precision can meet the budgets on the samples: in float32, with "
                f"other rounding, the model itself has {'; '.join(self.floats.unmet)}; samples like the data that the "
                "model was trained on have larger answers"
            )
        elif not self.meets:
            lines.append(
                "no selection of nodes in higher precision meets the budgets on the samples; the best of "
                f"{self.scored} tried with at least half of the nodes in 8 bits: {'; '.join(self.score.unmet)}"
            )
        lines += [
            f"{each.unit!r} is in {_SAID[each.level]}: "
            f"with only {_describe_run(each.run)} in 8 bits the outputs have {each.harm:.1f} dB"
            for each in self.restored[:_NAMED]
        ]
        if len(self.restored) > _NAMED:
            lines.append(
                f"{len(self.restored) - _NAMED} more nodes with smaller losses are in higher precision; "
                "facts.restored in the JSON report names them"
            )
        return tuple(lines)

    @property
    def facts(self) -> dict[str, Any]:
        """The same as data."""
        restored = {
            each.unit: {"level": each.level, "alone_db": round(each.harm, 2)}
            | ({"alone_with": each.run - 1} if each.run > 1 else {})
            for each in self.restored
        }
        return {"restored": restored, "scored": self.scored}


def _describe_run(run: int) -> str:
    return "this node" if run == 1 else f"this node and {run - 1} beside it"


_SAID: Mapping[Level, str] = {"16-bit": "16 bits", "float": "float32"}


class _Search:
    """One search: the scored models and their distance from the budgets."""

    def __init__(self, space: Space, scorer: Scorer, progress: Callable[[int, int], None]) -> None:
        self._space, self._scorer, self._progress = space, scorer, progress
        self._known: dict[frozenset[tuple[str, Level]], Score] = {}
        self._measured = 0  # models scored for one purpose alone

    @property
    def scored(self) -> int:
        return len(self._known) + self._measured

    def score(self, restored: Mapping[str, Level]) -> Score:
        key = frozenset(restored.items())
        if key not in self._known:
            self._known[key] = self._scorer.score(self._space.built(restored))
        return self._known[key]

    def meets(self, restored: Mapping[str, Level]) -> bool:
        """Return whether a model meets the budgets, as far as the first samples tell where they tell it clearly."""
        key = frozenset(restored.items())
        if key not in self._known:
            score = self._scorer.score(self._space.built(restored), decides=True)
            if score.is_partial:
                self._measured += 1
                return score.meets
            self._known[key] = score
        return self._known[key].meets

    def holds(self, restored: Mapping[str, Level]) -> bool:
        """Return whether a model meets the budgets here and where its values are rounded otherwise, with room.

        A third runtime may be as far from the worse of the two as they are from each other.
        """
        here = self.score(restored)
        if not here.meets:
            return False
        self._measured += 1
        return here.has_room(self._scorer.score(self._space.built(restored), elsewhere=True))

    def rank(self) -> dict[str, tuple[float, int]]:
        """Map units to the harm of the run that they were measured in, and its length, the most harmful first."""
        units = list(self._space.units)
        length = 1 if len(units) <= _MEASURED else -(-len(units) // (_MEASURED // 2))
        harms: dict[Run, float] = {}
        pieces = _pieces(tuple(units), length)
        floats = self._space.built(_head(units, len(units), "float"))
        part = self._scorer.float_part(floats, [run[-1] for run in pieces[:-1]], _RANKED_ON)

        def measure(runs: Iterable[Run]) -> None:
            for run in runs:
                harms[run] = self._harm(run, part)
                self._progress(min(self._measured, _MEASURED), min(len(units), _MEASURED))

        measure(pieces)
        begun = self._measured - len(harms)
        while self._measured - begun < _MEASURED and (long := [run for run in harms if len(run) > 1]):
            worst = min(long, key=harms.__getitem__)
            measure(_pieces(worst, -(-len(worst) // 2)))
            del harms[worst]
        first = {unit: place for place, unit in enumerate(units)}
        ranked = sorted(harms.items(), key=lambda item: (item[1], first[item[0][0]]))
        return {unit: (harm, len(run)) for run, harm in ranked for unit in run}

    def _harm(self, units: Run, part: FloatPart) -> float:
        """Return the lowest SQNR of the outputs with a budget, in dB, where these units alone are in 8 bits."""
        others: dict[str, Level] = {other: "float" for other in self._space.units if other not in units}
        self._measured += 1
        return self._scorer.score(self._space.built(others), samples=_RANKED_ON, behind=part).lowest_sqnr

    def shortest(self, ranked: Sequence[str], level: Level) -> dict[str, Level] | None:
        """Return the shortest head of `ranked` that meets the budgets at `level`; None where none does."""
        # All of them in float would be another way to say that nothing is quantized.
        low, high = 0, len(ranked) - (level == "float")
        longest = high
        if high < 1 or not self.meets(_head(ranked, high, level)):
            return None
        high = _least(low, high, lambda count: self.meets(_head(ranked, count, level)))
        while not self.score(_head(ranked, high, level)).meets:
            if high == longest:
                return None
            high += 1
        return _head(ranked, high, level)

    def mix_levels(self, ranked: Sequence[str]) -> dict[str, Level] | None:
        """Return the shortest head in float that meets the budgets with the next in 16 bits; None where none does.

        It is for models where 16 bits do not suffice for some units, whose weights lose too much, and 8 do for none.
        """
        wide, most = _head(ranked, len(ranked), "16-bit"), len(ranked) - 1
        if most < 1 or not self.meets(wide | _head(ranked, most, "float")):
            return None
        count = _least(0, most, lambda count: self.meets(wide | _head(ranked, count, "float")))
        floats, rest = _head(ranked, count, "float"), ranked[count:]
        count = _least(0, len(rest), lambda count: self.meets(floats | _head(rest, count, "16-bit")))
        found = floats | _head(rest, count, "16-bit")
        return found if self.score(found).meets else None

    def pruned(self, restored: dict[str, Level], ranked: Sequence[str]) -> dict[str, Level]:
        """Drop units that turn out unnecessary."""
        tries = _TRIED_AGAIN if len(ranked) <= _MEASURED else _TRIED_AGAIN_OF_MANY
        left = restored
        for unit in [each for each in reversed(ranked) if each in restored][:tries]:
            fewer = {other: level for other, level in left.items() if other != unit}
            if self.meets(fewer):
                left = fewer
        return left if self.score(left).meets else restored

    def extend(self, restored: dict[str, Level], ranked: Sequence[str]) -> dict[str, Level]:
        """Return a selection with as many more of `ranked` as it takes to hold elsewhere; itself where none does."""
        if self.holds(restored):
            return restored
        level = next(iter(restored.values()), LEVELS[0])
        others = [unit for unit in ranked if unit not in restored]
        most = len(others) - (level == "float")
        low, high = 0, min(1, most)
        while not self.holds(restored | _head(others, high, level)):
            if high >= most:
                return restored
            low, high = high, min(2 * high, most)
        high = _least(low, high, lambda count: self.holds(restored | _head(others, count, level)))
        return restored | _head(others, high, level)

    def best(self, ranked: Sequence[str]) -> tuple[dict[str, Level], Score]:
        """Return the model nearest to the budgets among those with at least half the units in 8 bits."""
        half = len(ranked) // 2
        for level in LEVELS:
            self.score(_head(ranked, half, level))
        near = [(key, score) for key, score in self._known.items() if len(key) <= half]
        key, score = min(near, key=lambda item: (item[1].shortfall, len(item[0])))
        return dict(key), score


def restore_for_budgets(
    space: Space, scorer: Scorer, progress: Callable[[int, int], None] = lambda done, total: None
) -> SearchResult:
    """Restore the fewest units so that the model meets the scorer's budgets, or the nearest model (`meets` False).

    `progress` receives how many units are ranked, of how many.
    """
    run = _Search(space, scorer, progress)
    before = run.score({})
    if run.holds({}):
        return SearchResult(space.built({}), (), before, before, True, run.scored)
    floats = run.score(_head(space.units, len(space.units), "float"))
    if not floats.meets:
        return SearchResult(space.built({}), (), before, before, False, run.scored, floats)
    harms = run.rank()
    ranked = list(harms)
    heads = [head for level in LEVELS if (head := run.shortest(ranked, level)) is not None]
    if not heads and (mixed := run.mix_levels(ranked)) is not None:
        heads = [mixed]
    if heads:
        # Of as many in 16 bits and in float, those in 16 bits.
        chosen = run.extend(run.pruned(min(heads, key=len), ranked), ranked)
        score = run.score(chosen)
    else:
        chosen, score = run.best(ranked)
    restored = tuple(Restored(unit, chosen[unit], *harms[unit]) for unit in ranked if unit in chosen)
    return SearchResult(space.built(chosen), restored, score, before, score.meets, run.scored)


def _head(ranked: Iterable[str], count: int, level: Level) -> dict[str, Level]:
    return {unit: level for unit, _ in zip(ranked, range(count), strict=False)}


def _least(low: int, high: int, suffices: Callable[[int], bool]) -> int:
    """Return the least count above `low` that suffices, by bisection; `high` does, and `low` does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _pieces(units: Run, length: int) -> list[Run]:
    return [units[start : start + length] for start in range(0, len(units), length)]


WHY = "the budgets are not kept with it in 8 bits"


class MixedPrecisionSpace:
    """The models of one calibration, by their restored nodes; see search.Space. `write` makes the model of a plan."""

    def __init__(self, placement: Placement, write: Callable[[Placement], Model]) -> None:
        self._placement, self._write = placement, write
        # What only follows its neighbours does no harm that restoring them would not mend.
        self.units = tuple(unit.node for unit in placement.units if not unit.follows)

    def plan(self, restored: Mapping[str, Level]) -> Placement:
        """Return the plan with these nodes in float, or their activations in 16 bits."""
        floats = [node for node, level in restored.items() if level == "float"]
        plan = self._placement.without(floats, why=WHY)
        wide = [unit for unit in plan.units if restored.get(unit.node) == "16-bit"]
        return plan.widened([name for unit in wide for name in unit.tensors])

    def built(self, restored: Mapping[str, Level]) -> Model:
        """See search.Space.built."""
        plan = self.plan(restored)
        model = self._write(plan)
        if plan.wide and model.opset < INT16_OPSET:
            lift(model.ir, INT16_OPSET)
        return model

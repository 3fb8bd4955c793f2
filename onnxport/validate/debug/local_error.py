"""Run each node of the reference on the candidate's own values: is the node wrong, or its inputs?

Comparing values with the reference's does not show that: in a deep network one node's fault is in every value behind
it, and rounding alone drifts. On the candidate's own inputs the reference's node gives what a right candidate gave, up
to the rounding of that node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.formats.model import Model
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.comparison import Comparison, compare
from onnxport.validate.debug.graph import Network, Part
from onnxport.validate.debug.rounding import Rounds, step
from onnxport.validate.debug.taps import PLAIN, sqnr
from onnxport.validate.noise_runs import Answers, perturb_inputs
from onnxport.validate.report import Precision
from onnxport.validate.tolerance import NOISE_FACTOR, Noise, Tolerance, measure_noise

# Bytes of answers to compute at once; five of each are in memory.
_AT_ONCE = 32 * 2**20
# These round nothing: on the same inputs every runtime gives the same.
_EXACT = frozenset(
    "Round Floor Ceil Sign Cast ArgMax ArgMin Greater GreaterOrEqual Less LessOrEqual Equal Not And Or Where Relu Abs "
    "Neg Clip MaxPool GlobalMaxPool ReduceMax ReduceMin Max Min Gather GatherND GatherElements Slice Concat Split Pad "
    "Reshape Transpose Squeeze Unsqueeze Flatten Expand Tile DepthToSpace SpaceToDepth TopK NonZero Identity".split()
)
_SATURATING = frozenset({"Sigmoid", "HardSigmoid"})
_FLOAT32 = Rounds()


@dataclass(frozen=True)
class LocalError:
    """One value of the candidate against the reference's nodes on the candidate's own inputs to them.

    Attributes:
        share: the largest difference over what is allowed; above 1 the node is at fault.
        index: of that element.
        expected, given: the reference's and the candidate's number there; NaN for no number.
        fault: the fault in words; empty for none.
        sqnr_db: of this node alone: Infinity without error, None without a signal or finite floats.
    """

    value: str
    share: float
    index: tuple[int, ...]
    expected: float
    given: float
    fault: str
    sqnr_db: float | None = None


@dataclass(frozen=True)
class _Results:
    """The results of a part.

    Attributes:
        answers: with the candidate's roundings, if it has other than float32's.
        probes: where rounding differs.
        exact, own: answers and probes without these roundings; the same where there are none.
    """

    answers: Answers
    probes: Sequence[Answers]
    exact: Answers
    own: Sequence[Answers]


class Replay:
    """Runs parts of the reference on the candidate's values.

    Args:
        network: the reference's graph.
        given: the values that the candidate shows.
        sizes: bytes of every value of the network.
        rounds: what the candidate rounds to.

    Attributes:
        untried: the targets that could not be computed from the candidate's values, and why.
    """

    def __init__(
        self, network: Network, given: Iterable[str], sizes: Mapping[str, int], rounds: Rounds = _FLOAT32
    ) -> None:
        self._network, self._given, self._sizes = network, frozenset(given), sizes
        self._rounds = rounds
        self.untried: dict[str, str] = {}

    def needs(self, target: str) -> list[str]:
        """Return the candidate's values that are needed to compare `target`, itself included."""
        return [*self._network.frontier(target, self._given), target]

    def compare(
        self, targets: Sequence[str], feeds: Feeds, candidate: Mapping[str, Array]
    ) -> dict[str, LocalError]:
        """Run the targets' nodes on the candidate's values, a few at a time; skip nodes that cannot run on them.

        Args:
            feeds: the inputs of the models.
            candidate: its values, at least those of `needs` for every target.
        """
        found: dict[str, LocalError] = {}
        for group in self._groups(targets):
            found |= self._compare_some(group, feeds, candidate)
        return found

    def _groups(self, targets: Sequence[str]) -> Iterator[list[str]]:
        """Divide the targets into runs of at most `_AT_ONCE` bytes."""
        group, taken = list[str](), 0
        for name in targets:
            size = self._sizes.get(name, 0)
            if group and taken + size > _AT_ONCE:
                yield group
                group, taken = [], 0
            group.append(name)
            taken += size
        yield group

    def _compare_some(
        self, targets: Sequence[str], feeds: Feeds, candidate: Mapping[str, Array]
    ) -> dict[str, LocalError]:
        """Compare targets; halve those that cannot run until the culprit is alone."""
        try:
            return self._compare_all(targets, feeds, candidate)
        except (RunError, InputError) as error:
            if len(targets) == 1:
                self.untried[targets[0]] = error.why
                return {}
        middle = len(targets) // 2
        return self._compare_some(targets[:middle], feeds, candidate) | self._compare_some(
            targets[middle:], feeds, candidate
        )

    def part(self, targets: Sequence[str], candidate: Mapping[str, Array]) -> Part:
        """Return the nodes between the candidate's values and `targets`, ready to run on values like these."""
        part = self._network.part(targets, self._given)
        for value in part.proto.graph.input:
            if value.name in self._given:
                value.type.CopyFrom(_type(candidate[value.name]))
        return part

    def _compare_all(
        self, targets: Sequence[str], feeds: Feeds, candidate: Mapping[str, Array]
    ) -> dict[str, LocalError]:
        part = self.part(targets, candidate)
        inputs = {name: candidate[name] if name in self._given else feeds[name] for name in part.inputs}
        results = self._run(part, inputs)
        return {
            name: self._local_error(name, key, results, candidate[name]) for name, key in part.answers.items()
        }

    def _run(self, part: Part, inputs: Feeds) -> _Results:
        """Run a part, and again where rounding differs."""
        data, folder = part.proto.SerializeToString(), self._network.folder
        moved_by: Precision = "float32" if self._rounds.made else self._rounds.precision
        with OrtRuntime(data, PLAIN, folder=folder) as plain:
            answers = plain.run(inputs)
            probes = [perturb_inputs(plain.run, seed, moved_by)(inputs, answers) for seed in (1, 2)]
        with OrtRuntime(data, folder=folder) as optimized:
            probes.append(optimized.run(inputs))
        if self._rounds.made:
            nearest, other = (self._rounds.model(part.proto, folder, seed) for seed in (None, 1))
            if nearest is not None and other is not None:
                return self._run_rounded(nearest, other, inputs, answers, probes)
        return _Results(answers, probes, answers, probes)

    def _run_rounded(
        self, nearest: Model, other: Model, inputs: Feeds, exact: Answers, own: Sequence[Answers]
    ) -> _Results:
        """Run a part with roundings, as RoundedReference does for the whole model."""
        with OrtRuntime.of_model(nearest) as runtime:
            answers = runtime.run(inputs)
            probes = [exact, perturb_inputs(runtime.run, 1, self._rounds.precision)(inputs, answers)]
        with OrtRuntime.of_model(other) as runtime:
            probes.append(perturb_inputs(runtime.run, 2, self._rounds.precision)(inputs, answers))
        return _Results(answers, probes, exact, own)

    def _local_error(self, name: str, key: str, results: _Results, given: Array) -> LocalError:
        nodes, expected = self._network.between(name, self._given), results.answers[key]
        tolerance = self._tolerance(name, nodes)
        noise = self._noise(key, results, nodes)
        if name in tolerance.steps and expected.dtype.kind in "iu" and expected.shape == given.shape:
            # One code off is rounding; other whole numbers must be equal.
            numbers = expected.astype(np.float32), given.astype(np.float32)
            found = compare(name, *numbers, Noise(noise.groups, None), tolerance)
        else:
            found = compare(name, expected, given, noise, tolerance)
        pair = _worst_pair(expected, given, found)
        sqnr = _own_sqnr(results.exact[key], given)
        return LocalError(name, found.ratio, found.index, *pair, found.fault, sqnr)

    def _noise(self, key: str, results: _Results, nodes: Sequence[int]) -> Noise:
        own, probes = ([each[key] for each in found] for found in (results.own, results.probes))
        if all(self._network.nodes[index].op_type in _EXACT for index in nodes):
            own, probes = [], [results.exact[key]]  # except for the roundings that were added
        if self._rounds.made and len(nodes) > 1 and results.answers[key].dtype == np.float32:
            # Joined nodes fold their constants before rounding, and a bias is rounded as it is added.
            probes.append(self._rounds.stored(results.answers[key]))
        noise = measure_noise(results.answers[key], probes)
        if not self._rounds.made:
            return noise
        # Noise of float32 counts as it does for float32.
        weight = NOISE_FACTOR / Tolerance(1, precision=self._rounds.precision).rule.factor
        return noise.combine(measure_noise(results.exact[key], own), weight)

    def _tolerance(self, name: str, nodes: Sequence[int]) -> Tolerance:
        """Return the tolerance of one node, or of a few joined ones."""
        saturates = self._network.node(name).op_type in _SATURATING
        size = step(self._network, name, nodes)
        return Tolerance(
            self._network.length(nodes, self._sizes),
            frozenset({name} if saturates else ()),
            precision=self._rounds.precision,
            steps={name: size} if size else {},
        )


def at_fault(found: Mapping[str, LocalError], order: Sequence[str]) -> list[LocalError]:
    """Return the nodes that are at fault themselves, in order.

    A value barely beyond its tolerance does not count beside one far beyond.
    """
    faults = [found[name] for name in order if name in found and found[name].share > 1]
    worst = max((fault.share for fault in faults), default=0.0)
    return [fault for fault in faults if fault.share >= worst * _RELEVANT]


# A fault of less than this part of the largest one is an operator of low precision, not the cause.
_RELEVANT = 0.05


def _own_sqnr(expected: Array, given: Array) -> float | None:
    """Return the SQNR of one node alone; see LocalError."""
    if expected.dtype.kind != "f" or given.shape != expected.shape:
        return None
    if not (np.isfinite(expected).all() and np.isfinite(given).all()):
        return None
    ours = expected.astype(np.float64)
    return sqnr(ours, given.astype(np.float64) - ours)


def _worst_pair(expected: Array, given: Array, found: Comparison) -> tuple[float, float]:
    if (
        len(found.index) != expected.ndim
        or expected.shape != given.shape
        or expected.dtype.kind not in "fiub"
    ):
        return np.nan, np.nan
    if not expected.size:
        return np.nan, np.nan
    return float(expected[found.index]), float(given[found.index])


def _type(array: Array) -> onnx.TypeProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_type_proto(element, array.shape)

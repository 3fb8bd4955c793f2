"""Each node run again on the candidate's own values: is it the node that is wrong, or what it was given?

Comparing values with the reference's does not tell the two apart: in a deep network what one node gets wrong is in
every value behind it, and rounding alone drifts. Run on the inputs that the candidate itself had, a right node gives
what the candidate gave, up to the rounding of that one node.
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
from onnxport.runtimes.ort.session import OrtRuntime
from onnxport.validate.comparison import Comparison, compare
from onnxport.validate.debug.graph import Network, Part
from onnxport.validate.debug.rounding import Rounds, step
from onnxport.validate.debug.taps import PLAIN, sqnr
from onnxport.validate.noise_runs import Answers, other_runtime, perturb_inputs
from onnxport.validate.report import Precision
from onnxport.validate.tolerance import NOISE_FACTOR, Noise, Tolerance, measure_noise

# Bytes of answers that are computed at once; five of each are held.
_AT_ONCE = 32 * 2**20
# These compute nothing that could be rounded otherwise: on the same inputs every runtime gives the same.
_EXACT = frozenset(
    "Round Floor Ceil Sign Cast ArgMax ArgMin Greater GreaterOrEqual Less LessOrEqual Equal Not And Or Where Relu Abs "
    "Neg Clip MaxPool GlobalMaxPool ReduceMax ReduceMin Max Min Gather GatherND GatherElements Slice Concat Split Pad "
    "Reshape Transpose Squeeze Unsqueeze Flatten Expand Tile DepthToSpace SpaceToDepth TopK NonZero Identity".split()
)
_SATURATING = frozenset({"Sigmoid", "HardSigmoid"})
_FLOAT32 = Rounds()


@dataclass(frozen=True)
class Local:
    """One value of the candidate against what the reference's nodes make of the candidate's own inputs to them.

    Attributes:
        share: the largest difference over what is allowed; above 1 the node is at fault.
        index: where that is.
        expected, given: what the reference's node and the candidate say there; NaN where it is no number.
        fault: what is wrong in words; empty when nothing is.
        sqnr_db: of this node alone: Infinity without error, None without a signal or for what is no finite float.
    """

    value: str
    share: float
    index: tuple[int, ...]
    expected: float
    given: float
    fault: str
    sqnr_db: float | None = None


@dataclass(frozen=True)
class _Replayed:
    """What a part gives.

    Attributes:
        answers: with the candidate's roundings, if it has any beside float32's.
        probes: where these differ.
        exact, own: the answers and probes without them; the same where there are none.
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
        self,
        network: Network,
        given: Iterable[str],
        sizes: Mapping[str, int],
        rounds: Rounds = _FLOAT32,
    ) -> None:
        self._network, self._given, self._sizes = network, frozenset(given), sizes
        self._rounds = rounds
        self.untried: dict[str, str] = {}

    def needs(self, target: str) -> list[str]:
        """The candidate's values that are needed to judge `target`, itself included."""
        return [*self._network.frontier(target, self._given), target]

    def judge(self, targets: Sequence[str], feeds: Feeds, candidate: Mapping[str, Array]) -> dict[str, Local]:
        """The targets' nodes on the candidate's values, a few at a time; none for what cannot be run on them.

        Args:
            feeds: the inputs of the models.
            candidate: its values, those of `needs` for every target at least.
        """
        found: dict[str, Local] = {}
        for group in self._groups(targets):
            found |= self._tried(group, feeds, candidate)
        return found

    def _groups(self, targets: Sequence[str]) -> Iterator[list[str]]:
        """The targets in runs of at most `_AT_ONCE` bytes."""
        group, taken = list[str](), 0
        for name in targets:
            size = self._sizes.get(name, 0)
            if group and taken + size > _AT_ONCE:
                yield group
                group, taken = [], 0
            group.append(name)
            taken += size
        yield group

    def _tried(
        self, targets: Sequence[str], feeds: Feeds, candidate: Mapping[str, Array]
    ) -> dict[str, Local]:
        """As `_judge`; what cannot be run is halved until it is found."""
        try:
            return self._judge(targets, feeds, candidate)
        except (RunError, InputError) as error:
            if len(targets) == 1:
                self.untried[targets[0]] = error.why
                return {}
        middle = len(targets) // 2
        return self._tried(targets[:middle], feeds, candidate) | self._tried(
            targets[middle:], feeds, candidate
        )

    def part(self, targets: Sequence[str], candidate: Mapping[str, Array]) -> Part:
        """The nodes between the candidate's values and `targets`, ready to run on values like these."""
        part = self._network.part(targets, self._given)
        for value in part.proto.graph.input:
            if value.name in self._given:
                value.type.CopyFrom(_type(candidate[value.name]))
        return part

    def _judge(
        self, targets: Sequence[str], feeds: Feeds, candidate: Mapping[str, Array]
    ) -> dict[str, Local]:
        part = self.part(targets, candidate)
        inputs = {name: candidate[name] if name in self._given else feeds[name] for name in part.inputs}
        replayed = self._replayed(part, inputs)
        return {
            name: self._compared(name, key, replayed, candidate[name]) for name, key in part.answers.items()
        }

    def _replayed(self, part: Part, inputs: Feeds) -> _Replayed:
        """What the part gives, and what it gives where rounding differs."""
        data, folder = part.proto.SerializeToString(), self._network.folder
        moved_by: Precision = "float32" if self._rounds.made else self._rounds.precision
        with OrtRuntime(data, PLAIN, folder=folder) as plain:
            answers = plain.run(inputs)
            probes = [perturb_inputs(plain.run, seed, moved_by)(inputs, answers) for seed in (1, 2)]
        with OrtRuntime(data, folder=folder) as optimized:
            probes.append(other_runtime(optimized.run)(inputs, answers))
        if self._rounds.made:
            nearest, other = (self._rounds.model(part.proto, folder, seed) for seed in (None, 1))
            if nearest is not None and other is not None:
                return self._rounded(nearest, other, inputs, answers, probes)
        return _Replayed(answers, probes, answers, probes)

    def _rounded(
        self, nearest: Model, other: Model, inputs: Feeds, exact: Answers, own: Sequence[Answers]
    ) -> _Replayed:
        """As yardstick.RoundedReference does it for the whole model."""
        with OrtRuntime.of_model(nearest) as runtime:
            answers = runtime.run(inputs)
            probes = [exact, perturb_inputs(runtime.run, 1, self._rounds.precision)(inputs, answers)]
        with OrtRuntime.of_model(other) as runtime:
            probes.append(perturb_inputs(runtime.run, 2, self._rounds.precision)(inputs, answers))
        return _Replayed(answers, probes, exact, own)

    def _compared(self, name: str, key: str, replayed: _Replayed, given: Array) -> Local:
        nodes, expected = self._network.between(name, self._given), replayed.answers[key]
        tolerance = self._tolerance(name, nodes)
        noise = self._noise(key, replayed, nodes)
        if name in tolerance.steps and expected.dtype.kind in "iu" and expected.shape == given.shape:
            # One code off is rounding; a whole number that no step explains has to be the same.
            numbers = expected.astype(np.float32), given.astype(np.float32)
            found = compare(name, *numbers, Noise(noise.groups, None), tolerance)
        else:
            found = compare(name, expected, given, noise, tolerance)
        ends = _ends(expected, given, found)
        sqnr = _lost(replayed.exact[key], given)
        return Local(name, found.ratio, found.index, *ends, found.fault, sqnr)

    def _noise(self, key: str, replayed: _Replayed, nodes: Sequence[int]) -> Noise:
        own, probes = ([each[key] for each in found] for found in (replayed.own, replayed.probes))
        if all(self._network.nodes[index].op_type in _EXACT for index in nodes):
            own, probes = [], [replayed.exact[key]]  # but for the roundings that were made
        if self._rounds.made and len(nodes) > 1 and replayed.answers[key].dtype == np.float32:
            # Joined nodes have their constants folded before they are rounded, a bias as it is added.
            probes.append(self._rounds.stored(replayed.answers[key]))
        noise = measure_noise(replayed.answers[key], probes)
        if not self._rounds.made:
            return noise
        # Noise of float32 counts as it does for float32.
        weight = NOISE_FACTOR / Tolerance(1, precision=self._rounds.precision).rule.factor
        return noise.combine(measure_noise(replayed.exact[key], own), weight)

    def _tolerance(self, name: str, nodes: Sequence[int]) -> Tolerance:
        """What one node, or a few joined ones, may be off."""
        saturates = self._network.node(name).op_type in _SATURATING
        size = step(self._network, name, nodes)
        return Tolerance(
            self._network.length(nodes, self._sizes),
            frozenset({name} if saturates else ()),
            precision=self._rounds.precision,
            steps={name: size} if size else {},
        )


def at_fault(found: Mapping[str, Local], order: Sequence[str]) -> list[Local]:
    """What is itself at fault, in order; nothing if all is right.

    What is barely beyond its tolerance does not stand before what is far beyond.
    """
    faults = [found[name] for name in order if name in found and found[name].share > 1]
    worst = max((fault.share for fault in faults), default=0.0)
    return [fault for fault in faults if fault.share >= worst * _TELLING]


# A fault of less than this part of the largest one is an operator of low precision, not the cause.
_TELLING = 0.05


def _lost(expected: Array, given: Array) -> float | None:
    """The SQNR of what one node gave; see Local."""
    if expected.dtype.kind != "f" or given.shape != expected.shape:
        return None
    if not (np.isfinite(expected).all() and np.isfinite(given).all()):
        return None
    ours = expected.astype(np.float64)
    return sqnr(ours, given.astype(np.float64) - ours)


def _ends(expected: Array, given: Array, found: Comparison) -> tuple[float, float]:
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

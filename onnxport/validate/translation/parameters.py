"""Compare the weights and biases of matched products.

A weight that was rounded to nearest lies within half a step of the source's. An element at an end of its grid may stand
for more: its range was cut. Methods that round otherwise (GPTQ: Frantar et al. 2023; AdaRound: Nagel et al. 2020) move
an element by a step or so and the elements of a channel by less than a step on average. least_error.py recognizes
them by what they are for; else it is a doubt. More than that no rounding does.

A bias is rounded to half a step of int32, and may take back what its weight's rounding shifts (Nagel et al. 2019,
section 4.2):

    b' = b - (W' - W) E[x]

E[x] is the mean of the operand over the calibration samples. Files of ours declare it (formats/quantization_note.py),
and the bias is computed again. For other files it is measured on the fed samples, and may be off by twice the
operand's standard deviation in each channel. Other quantizers take back what rounding the operand shifts as well (NNCF,
fast bias correction): up to half a step of each of its elements.

On a map smaller than a filter some taps meet padding alone. They shift nothing, so W' - W is 0 there; a correction that
counts them, as files of open sizes have it, is accepted as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.core.windows import taps_on_data
from onnxport.formats.quantization_note import QuantizationNote
from onnxport.validate.translation.findings import Finding, Kind
from onnxport.validate.translation.forms import Core
from onnxport.validate.translation.layouts.rules import MOVED_ROWS
from onnxport.validate.translation.least_error import compare_errors
from onnxport.validate.translation.matches import Match
from onnxport.validate.translation.rounding_bounds import (
    FLOAT_NOISE,
    MOST_CUT,
    MOST_ROUNDINGS,
    SMALLEST_NORMAL,
    Rounded,
    beyond_half_step,
    cut_share,
    hidden_grid,
    is_cut,
    largest_error,
)

# Steps that another rounding may move the elements of a channel on average, and a single one.
_AVERAGE, _SINGLE = 1.5, 16.0
# Times the error of rounding to nearest that a channel has on the fed samples.
_WORSE = 8.0
# Of all weights, and steps.
_FEW, _FAR = 0.005, 4.0
# Standard deviations between the means of two sets of samples; and the least one, as a share of the largest channel's.
_DEVIATIONS, _DEAD = 2.0, 0.05
# A method that corrects biases corrects at least this share of them, and several.
_CORRECTED, _SEVERAL = 0.3, 3
# Of the sum of squares of a channel: what no method that chooses ranges cuts off.
_GONE = 0.5
# Weights of fewer numbers are not stored as integers (converters/coreml/quantized.py), and too few of them show their
# step: a symmetric grid of 8 bits is held against them.
_SMALL, _LEVELS = 64, 127
# Half steps are added up as if roundings were small: products of them are left out.
_SECOND_ORDER = 1.05
_MOVES = frozenset({"Reshape", "Transpose"})
# Times half a step: what no rounding adds up to along a channel.
_STRETCHED = 5.0
# Of a factor behind a product: rounding to 8 bits moves those of more than a sixtieth of the largest by less.
_MOST_FACTOR = 0.25
_LEAST = 1e-300


@dataclass
class Moments:
    """Sums over one channel's elements of an operand, on all fed samples.

    Attributes:
        count: elements of each channel.
        total, squares: float64[channels].
        low, high: of all channels.
        is_declared: whether the artefact says so; else they are measured.
    """

    count: int
    total: Array
    squares: Array
    low: float
    high: float
    is_declared: bool = False

    @classmethod
    def of(cls, values: Array, axis: int) -> Moments:
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(np.float64)
        low, high = float(rows.min(initial=0.0)), float(rows.max(initial=0.0))
        return cls(rows.shape[1], rows.sum(axis=1), np.square(rows).sum(axis=1), low, high)

    @classmethod
    def declared(cls, means: Array) -> Moments:
        """Return what an artefact declares: means, and no doubt about them."""
        magnitude = float(np.abs(means).max(initial=0.0))
        return cls(1, means, np.square(means), -magnitude, magnitude, is_declared=True)

    def plus(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            min(self.low, other.low),
            max(self.high, other.high),
        )

    def over(self, factor: Array) -> Moments:
        """Return the moments of the values, divided by a factor for each channel."""
        ends = self.low / np.abs(factor).max(), self.high / np.abs(factor).min()
        squares = self.squares / np.square(factor)
        return Moments(self.count, self.total / factor, squares, *ends, self.is_declared)

    @property
    def mean(self) -> Array:
        return np.asarray(self.total / self.count)

    @property
    def doubt(self) -> Array:
        """How far the mean of each channel over other samples may lie from this one."""
        variance = self.squares / self.count - np.square(self.mean)
        deviation = np.sqrt(np.maximum(variance, 0.0))
        # A channel that is 0 on these samples need not be so on others.
        return np.asarray(_DEVIATIONS * np.maximum(deviation, _DEAD * deviation.max(initial=0.0)))


@dataclass(frozen=True)
class Product:
    """A matched product with what its rounding moves.

    Attributes:
        match: of its result.
        core, source: the artefact's and the source's, which read the same operand.
        operand: the source's value that it reads.
        operand_step: of the grid on which the artefact reads it; 0 for floats.
    """

    match: Match
    core: Core
    source: Core
    operand: ir.Value
    operand_step: float = 0.0

    @property
    def axis(self) -> int:
        """The axis of the operand's channels."""
        return -1 if self.core.op == "MatMul" else 1

    @property
    def name(self) -> str:
        """The name of the artefact's node."""
        node = self.core.value.producer()
        return (node.name if node is not None else "") or ""

    @property
    def _inputs(self) -> int:
        """The number of inputs of one group."""
        assert self.core.weight is not None
        return int(_per_input(self.core, self.core.weight.values).shape[1])

    @property
    def is_bias_rounded(self) -> bool:
        """Whether rounding to half a step explains the bias."""
        return not beyond_half_step(*self._biases).any()

    @property
    def _biases(self) -> tuple[Rounded, Rounded]:
        ours, theirs = self.core.bias, self.source.bias
        assert ours is not None
        assert theirs is not None
        if self.operand_step:
            # Where it is stored as floats: the int32 step that it has is the product of the operands' steps.
            stored = self.match.head.core.weight
            weight = self._weights[0] if stored is None or stored.is_exact else stored
            half = np.broadcast_to(weight.half, weight.values.shape)
            own = self.operand_step * _largest(self.core, half)
            ours = replace(ours, half=np.maximum(ours.half, own))
        return ours, theirs

    @property
    def _weights(self) -> tuple[Rounded, Rounded]:
        ours, theirs = self.core.weight, self.source.weight
        assert ours is not None
        assert theirs is not None
        return ours, theirs

    @property
    def is_weight_rounded(self) -> bool:
        """Whether rounding to nearest explains the weight."""
        return not self._beyond.any()

    @property
    def _beyond(self) -> Array:
        ours, theirs = self._weights
        return beyond_half_step(ours, theirs, self._channel_axis) & ~is_cut(ours, theirs)

    @property
    def _channel_axis(self) -> int | None:
        """The axis of the weight's output channels; None where groups share it."""
        if self.core.op == "ConvTranspose":
            return 1 if self.core.attributes["group"] == 1 else None
        return 0 if self.core.op == "Conv" else 1

    def check_weight(self, rows: Array | None = None, *, is_declared: bool = False) -> Finding | None:
        """Return what rounding does not explain of the weight; None for nothing.

        Args:
            rows: of the operand, see least_error.py; None where they are unknown.
            is_declared: whether the file says that its weights are rounded to nearest.
        """
        ours, theirs = self._weights
        beyond = self._beyond
        if not beyond.any():
            return self._check_ends()
        difference = np.abs(ours.values - theirs.values)
        if ours.is_exact:
            share = float(difference.max() / np.abs(theirs.values).max(initial=0.0) or np.inf)
            return self._finding(f"its weight, not quantized, is off by {share:.1%} of the largest", "fault")
        half = np.broadcast_to(ours.half, difference.shape)
        steps = np.divide(difference, 2 * half, out=np.full(difference.shape, np.inf), where=half > 0)
        channels = _channel_rows(self.core, np.where(beyond, steps, np.minimum(steps, 0.5)))
        average = float(np.sqrt(np.square(channels).mean(axis=1)).max())
        furthest = float(steps[beyond].max())
        is_off = average > _AVERAGE or furthest > _SINGLE or self._is_stretched()
        # Methods that do not round to nearest move many weights, a damaged file few and these far.
        is_few = np.count_nonzero(beyond) < _FEW * beyond.size
        is_alone = is_few and furthest > _FAR
        if rows is not None and not (is_declared or is_alone):
            is_less, times = compare_errors(self.core, ours, theirs, rows)
            if is_less and times <= _WORSE and not is_few:
                return self._check_ends()
            is_off = is_off and times > _WORSE
        kind: Kind = "fault" if is_declared or is_alone or is_off else "doubt"
        text = (
            f"{np.count_nonzero(beyond):,} of {beyond.size:,} weights are more than half a step from the source's, "
            f"up to {furthest:.3g} steps"
        )
        return self._finding(text, kind)

    def _check_ends(self) -> Finding | None:
        """Return how much of a channel the ends of its grid cut off, if no method that chooses ranges cuts so much."""
        ours, theirs = self._weights
        if not ours.ends.any():
            return None
        share = cut_share(ours, theirs, self._is_cut, {"Conv": 0}.get(self.core.op, 1))
        worst = int(np.argmax(share))
        if share[worst] <= MOST_CUT:
            return None
        text = (
            f"the ends of its grid cut off {share[worst]:.0%} of the energy of its weights in channel {worst}"
        )
        return self._finding(text, "fault" if share[worst] > _GONE else "doubt")

    @property
    def _is_cut(self) -> Array:
        ours, theirs = self._weights
        return beyond_half_step(ours, theirs, self._channel_axis) & is_cut(ours, theirs)

    def _is_stretched(self) -> bool:
        """Return whether a channel is the source's times a factor, by more than rounding makes of it.

        Rounding errors of a step's share r are 1 - factor = sum(error * weight) / sum(weight^2), with a standard
        deviation of r * step / sqrt(sum(weight^2)).
        """
        ours, theirs = self._weights
        rows, right = (_channel_rows(self.core, each.values) for each in (ours, theirs))
        half = _channel_rows(self.core, np.broadcast_to(ours.half, ours.values.shape)).max(axis=1)
        length = np.sqrt(np.square(right).sum(axis=1))
        factor = np.divide(
            (rows * right).sum(axis=1), np.square(length), out=np.ones(len(rows)), where=length > 0
        )
        return bool((np.abs(factor - 1) * length > _STRETCHED * half).any())

    def cut_weights(self) -> int:
        """Return how many weights lie beyond the ends of their grid."""
        return int(np.count_nonzero(self._is_cut))

    def check_plain_bias(self, moments: Moments | None) -> Finding | None:
        """Return what rounding does not explain of the bias, in a file that corrects few others; None for nothing.

        Args:
            moments: see check_bias: a fault is what no correction explains either.
        """
        ours, theirs = self._biases
        moved = np.abs(ours.values - theirs.values)
        half = np.broadcast_to(largest_error(ours, theirs), moved.shape)
        if (moved <= half).all():
            return None
        worst = int(np.argmax(moved))
        text = (
            f"{np.count_nonzero(~(moved <= half))} of {len(moved)} biases are not the source's, channel {worst} by "
            f"{moved[worst]:.3g} where rounding explains {half[worst]:.2g}"
        )
        is_gone = not ours.values.any()  # and the source has one
        is_fault = is_gone or (moments is not None and self.check_bias(moments) is not None)
        return self._finding(text, "fault" if is_fault else "doubt")

    def check_bias(self, moments: Moments | None) -> Finding | None:
        """Return what neither rounding nor a correction explains of the bias; None for nothing.

        Args:
            moments: of the operand, declared or on the fed samples; None where they are unknown.
        """
        ours, theirs = self._biases
        moved = ours.values - theirs.values
        half = largest_error(ours, theirs)
        if (np.abs(moved) <= half).all():
            return None
        if moments is None or len(moments.mean) % self._inputs:
            return self._finding("its bias is not the source's, and what it reads is unknown", "doubt")
        factor = np.broadcast_to(self.match.factor, moments.mean.shape)
        shift = _per_input(self.core, self._weights[0].values - self._weights[1].values)
        moments = moments.over(factor)
        weights = _per_input(self.core, np.abs(self._weights[1].values))
        half = half + FLOAT_NOISE * 0.1 * _times(self.core, weights, np.abs(moments.mean))
        expected = -_times(self.core, shift, moments.mean)
        slack = half + _times(self.core, np.abs(shift), moments.doubt)
        if not moments.is_declared:
            halves = np.full(len(moments.mean), self.operand_step / 2)
            slack = slack + _times(self.core, weights, halves)
        beyond = ~(np.abs(moved - expected) <= slack)
        if beyond.any() and (met := self._taps_on_data) is not None:
            shift = _per_input(self.core, (self._weights[0].values - self._weights[1].values) * met)
            expected = -_times(self.core, shift, moments.mean)
            beyond &= ~(np.abs(moved - expected) <= slack)
        if beyond.any() and moments.is_declared and ours.values.any():
            beyond &= ~self._follows_common_factor(moments.mean, half)
        if not beyond.any():
            return None
        worst = int(np.argmax(np.where(beyond, np.abs(moved - expected) / slack, 0)))
        correction = f"{expected[worst]:.3g} +- {slack[worst]:.2g}"
        text = (
            f"{np.count_nonzero(beyond)} of {len(moved)} biases are not the source's: channel {worst} is off by "
            f"{moved[worst]:.3g}, where correcting its weight's rounding explains {correction}"
        )
        is_gone = not ours.values.any()  # and the source has one
        return self._finding(text, "fault" if moments.is_declared or is_gone else "doubt")

    @property
    def _taps_on_data(self) -> Array | None:
        """Which taps of the filter meet data, see core/windows.py; None where all of them may."""
        attributes, weight, shape = self.core.attributes, self._weights[0].values, self.operand.shape
        if (
            self.core.op != "Conv"
            or shape is None
            or len(shape) != weight.ndim
            or attributes["auto_pad"] != "NOTSET"
        ):
            return None
        sizes = [each if isinstance(each, int) else None for each in shape[2:]]
        names = ("strides", "dilations", "pads")
        return taps_on_data(sizes, weight.shape[2:], *(attributes[name] for name in names))

    def _follows_common_factor(self, mean: Array, half: Array) -> Array:
        """Return for each channel whether a rounded factor behind the product, of weight and bias alike, explains it.

        With r = V.W / W.W and the means E of the operand, (c + V E) / r is b + W E: a correction keeps the channel's
        mean. As V is rounded by up to h, with the variance h^2 / 3, r is known to 4 deviations.
        """
        ours, theirs = self._biases
        (weight, original) = self._weights
        values, wanted = (_by_output(self.core, each.values) for each in (weight, original))
        halves = _by_output(self.core, np.broadcast_to(weight.half, weight.values.shape))
        lengths = np.maximum(np.square(wanted).sum(axis=1), _LEAST)
        ratio = (values * wanted).sum(axis=1) / lengths
        doubt = 4 * np.sqrt((np.square(halves) / 3 * np.square(wanted)).sum(axis=1)) / lengths
        given, kept = (
            bias + _times(self.core, _per_input(self.core, each.values), mean)
            for bias, each in ((ours.values, weight), (theirs.values, original))
        )
        slack = half + doubt * np.abs(kept)
        is_near = np.abs(ratio - 1) < _MOST_FACTOR
        return np.asarray(is_near & (np.abs(given / np.where(is_near, ratio, 1) - kept) <= slack))

    def check_rounding(self, rounding: str) -> Iterator[Finding]:
        """Yield what rounding to a float type of 16 bits does not explain of weight and bias.

        Constants may be rounded before they are folded into each other, and after.
        """
        for name, axis, parts in (
            ("weights", self._channel_axis, self._weights),
            ("biases", None, self._biases),
        ):
            ours, theirs = parts
            difference = np.abs(ours.values - theirs.values)
            most = np.broadcast_to(largest_error(ours, theirs, axis), difference.shape)
            beyond = ~(difference <= _SECOND_ORDER * most) & ~is_cut(ours, theirs)
            if not beyond.any():
                continue
            times = np.divide(difference, most, out=np.full(difference.shape, np.inf), where=most > 0)
            worst = float(times[beyond].max())
            is_far = beyond & (times > MOST_ROUNDINGS) & (difference > SMALLEST_NORMAL[rounding])
            text = (
                f"{np.count_nonzero(beyond):,} of {beyond.size:,} {name} are more than half a step from the source's: "
                f"up to {worst:.3g} times what rounding to {rounding} explains"
            )
            yield self._finding(text, "fault" if is_far.any() or not np.isfinite(worst) else "doubt")

    def _finding(self, text: str, kind: Kind) -> Finding:
        return Finding(self.core.label, text, kind)


def products(matches: list[Match], *, has_integers: bool = True) -> Iterator[Product]:
    """Yield every matched product, once for each value that it is read as.

    Args:
        has_integers: whether weights that are stored as floats may have been integers.
    """
    seen = set()
    read = {(each.value, each.original): each for each in matches}
    for match in matches:
        if match.product is None or match.of_source is None or match.operand is None:
            continue
        cores = match.product, match.of_source
        # One product may be read with different constants behind it, which are folded into its bias.
        if (match.value, match.original, match.multiple) not in seen:
            seen.add((match.value, match.original, match.multiple))
            step = _step(read, match.operand)
            product = Product(match, *cores, match.operand[1], step)
            yield _on_hidden_grid(product) if has_integers else product


_Pair = tuple[ir.Value, ir.Value]


def _step(read: Mapping[_Pair, Match], pair: _Pair) -> float:
    """Return the step of the grid that a value is on, also behind an operator that only moves numbers; 0 without."""
    while (match := read.get(pair)) is not None:
        if match.head.grids:
            return max(float(np.max(each.step)) for each in match.head.grids)
        ours, theirs = (each.core.operands[:1] for each in (match.head, match.source))
        if match.head.core.op not in _MOVES or not isinstance(ours[0], ir.Value):
            break
        assert isinstance(theirs[0], ir.Value)
        pair = ours[0], theirs[0]
    return 0.0


def _on_hidden_grid(product: Product) -> Product:
    """Return a product whose weight was de-quantized in the file with its grid."""
    weight = product.core.weight
    if weight is None or not weight.is_exact or product.is_weight_rounded:
        return product
    axis = {"Conv": 0}.get(product.core.op, 1)
    found = hidden_grid(weight.values, None) or hidden_grid(weight.values, axis)
    if found is None and weight.values.size < _SMALL:
        others = tuple(each for each in range(weight.values.ndim) if each != axis)
        largest = np.abs(weight.values).max(axis=others, keepdims=True)
        found = Rounded(weight.values, np.broadcast_to(largest / _LEVELS / 2, weight.values.shape))
    return product if found is None else replace(product, core=replace(product.core, weight=found))


def check_products(
    found: list[Product],
    note: QuantizationNote | None,
    moments: Mapping[ir.Value, Moments],
    rows: Mapping[ir.Value, Array],
) -> Iterator[tuple[Product, Finding]]:
    """Yield products with what is wrong with their weights and biases.

    Args:
        note: what the artefact declares.
        moments: measured ones of the operands of other products, whose bias rounding alone does not explain.
        rows: of the operands of products whose weight is not rounded to nearest, by the product's source.
    """
    declared = {} if note is None else note.means
    corrected = sum(not each.is_bias_rounded for each in found)
    is_corrected = corrected >= max(_SEVERAL, _CORRECTED * len(found))
    for product in found:
        means = _in_base_order(declared.get(product.name), product.source)
        weight = product.check_weight(rows.get(product.source.value), is_declared=note is not None)
        if weight is not None:
            yield product, weight
        # A faulty weight explains no bias.
        elif means is None and not is_corrected:
            if (bias := product.check_plain_bias(moments.get(product.operand))) is not None:
                yield product, bias
        elif bias := product.check_bias(
            moments.get(product.operand) if means is None else Moments.declared(means)
        ):
            yield product, bias


def _in_base_order(means: Array | None, source: Core) -> Array | None:
    """Return declared means, which are of the source's operand, in the order in which normal forms read it."""
    node = source.value.producer()
    places = None if node is None else node.meta.get(MOVED_ROWS)
    return means if means is None or places is None or len(places) != len(means) else means[places]


def _channel_rows(core: Core, values: Array) -> Array:
    """Return a weight as [output channels, others]."""
    axis = {"Conv": 0, "ConvTranspose": 1}.get(core.op, 1)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def _largest(core: Core, values: Array) -> Array:
    """Return the largest number of each output channel; of all where groups share the weight's channels."""
    rows = np.asarray(_channel_rows(core, values).max(axis=1))
    channels = 0 if core.bias is None else len(core.bias.values)
    return rows if len(rows) == channels else np.asarray(rows.max(keepdims=True))


def _per_input(core: Core, values: Array) -> Array:
    """Return a weight as [output channels, inputs of a group], the taps of a filter added up."""
    if core.op == "MatMul":
        return values.T
    taps = values.reshape(*values.shape[:2], -1).sum(axis=2)
    if core.op == "Conv":
        return np.asarray(taps)
    groups = core.attributes["group"]  # ConvTranspose: [inputs, outputs of a group]
    return np.concatenate([each.T for each in np.split(taps, groups)])


def _by_output(core: Core, values: Array) -> Array:
    """Return a weight as [output channels, all that one sums]."""
    if core.op == "ConvTranspose":  # [inputs, outputs of a group, ...]
        parts = np.split(values, core.attributes["group"])
        return np.concatenate([each.swapaxes(0, 1).reshape(each.shape[1], -1) for each in parts])
    return values.T if core.op == "MatMul" else values.reshape(len(values), -1)


def _times(core: Core, matrix: Array, inputs: Array) -> Array:
    """Return matrix x inputs, each output channel with the inputs of its group."""
    groups = len(inputs) // matrix.shape[1]
    grouped = matrix.reshape(groups, -1, matrix.shape[1])
    return np.asarray(np.matmul(grouped, inputs.reshape(groups, -1, 1)).reshape(-1))

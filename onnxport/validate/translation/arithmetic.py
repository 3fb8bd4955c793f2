"""Check the integer arithmetic of every node on the reference's values, in the artefact's own runtime.

The artefact is cut where integers leave a QuantizeLinear, and where products read floats: each piece between two such
places reads what the reference's values are there, so that no error travels from one piece to the next. Every piece
runs twice:

- with all optimizations, by the integer kernels that the artefact runs by,
- without any, where ONNX Runtime de-quantizes, computes in float32 and quantizes, operator by operator: exact
  arithmetic on the same integers, up to 1e-6 of the result. Products with 16-bit integers are summed in two parts
  (exact_sums.py).

Both may differ by one step, which is what rounding half a step one way or the other makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.core.resources import Closing
from onnxport.formats.model import Model
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.exact_sums import with_exact_sums
from onnxport.validate.translation.findings import Finding, Kind

ANSWER = "/answer"
_STEP = 1
# Of the scale: float results of two orders of summation, and of kernels that round activations to 8 bits on their own
# (ONNX Runtime's MatMulNBits, into which it fuses products with weights in blocks).
_FLOAT = 1e-4
# The largest error, as a share of the largest result, and the mean one of the mean: of kernels that compute in floats;
# of those that round what they read to 8 bits, where single elements err by more; and of these where exact arithmetic
# rounds in the same way, so that only numbers between two steps differ (mean errors up to 7e-4 were seen).
PLAIN, ROUNDED, ALIKE = (1e-3, 1e-3), (0.5, 0.05), (0.1, 5e-3)
# Errors below are none, whatever the scale: a sigmoid that is 0 everywhere.
_LEAST = 1e-6


@dataclass(frozen=True)
class Pieces:
    """A model cut into pieces.

    Attributes:
        model: reads codes under their names and gives them under names that end in "/answer".
        labels: of the nodes that give them, by the name of the codes.
    """

    model: Model
    labels: Mapping[str, str]


def cut(model: Model, codes: Mapping[str, Array]) -> Pieces:
    """Cut a copy of `model` at the values named in `codes`, which are of these types and ranks."""
    copy = model.clone()
    graph = copy.ir.graph
    values = {value.name: value for node in graph for value in node.outputs}
    labels = {}
    for name, array in codes.items():
        value = values[name]
        dtype = ir.TensorType(ir.DataType.from_numpy(array.dtype))
        given = ir.Value(name=name, type=dtype, shape=ir.Shape([None] * array.ndim))
        value.name, value.type = name + ANSWER, dtype
        for user, place in tuple(value.uses()):
            user.replace_input_with(place, given)
        graph.inputs.append(given)
        graph.outputs.append(value)
        labels[name] = _label(value)
    # ONNX Runtime's optimizer numbers the nodes that it adds; in a graph that went through it before, these are there.
    for number, node in enumerate(graph):
        node.name = f"piece.{number}"
    return Pieces(copy, labels)


def _label(codes: ir.Value) -> str:
    """Return the operator that computes quantized values, and its name."""
    node = codes.producer()
    assert node is not None
    before = (
        node.inputs[0].producer() if node.op_type == "QuantizeLinear" and node.inputs[0] is not None else node
    )
    shown = node if before is None else before
    return f"{shown.op_type} {shown.name or codes.name!r}"


@dataclass
class Arithmetic:
    """How far the results of two runs lie apart.

    Attributes:
        compared: integers, of which `off` differ by one step.
        furthest: the largest difference of floats as a share of their scale; 0 within float32's noise.
        pieces: results that were compared.
        findings: pieces that differ by more.
    """

    compared: int = 0
    off: int = 0
    furthest: float = 0.0
    pieces: int = 0
    findings: tuple[Finding, ...] = ()


class Side(Protocol):
    """One of two runs of the same pieces."""

    @property
    def names(self) -> frozenset[str]:
        """What it is fed."""

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """Return outputs, and what the pieces give under names that end in ANSWER."""


class OrtPieces(Closing):
    """Pieces of an ONNX model in ONNX Runtime.

    Args:
        codes: values at the places to cut at, by name.
        is_exact: whether to compute without optimization.
    """

    def __init__(self, model: Model, codes: Mapping[str, Array], *, is_exact: bool) -> None:
        pieces = cut(model, codes)
        self.labels = pieces.labels
        options = RuntimeOptions(level="disable", integers="cpu") if is_exact else RuntimeOptions()
        self._runtime = OrtRuntime.of_model(
            with_exact_sums(pieces.model) if is_exact else pieces.model, options
        )

    @property
    def names(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self._runtime.inputs)

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """See Side."""
        return self._runtime.run(feeds)

    def close(self) -> None:
        self._runtime.close()


class ArithmeticCheck:
    """Compares the pieces of one artefact with exact arithmetic.

    Args:
        ours: the artefact in its own runtime; `exact` computes what its integers stand for.
        labels: of the pieces, by the name of what they give.
        floats: the largest and the mean error of floats: PLAIN, or ROUNDED where kernels may round what they read to
            8 bits on their own, or ALIKE where `exact` rounds so too.
        coarse: share of the integers' range by which kernels may be off in a right file.
    """

    def __init__(
        self,
        ours: Side,
        exact: Side,
        labels: Mapping[str, str],
        *,
        floats: tuple[float, float] = ROUNDED,
        coarse: float = 0.0,
    ) -> None:
        self._ours, self._exact, self._labels, self._coarse = ours, exact, labels, coarse
        self._most = floats

    def run(self, sets: Sequence[tuple[Feeds, Mapping[str, Array]]]) -> Arithmetic:
        """Compare both runs on some sets of inputs.

        Args:
            sets: feeds of the artefact, and codes of the reference's values.
        """
        found = Arithmetic(pieces=len(self._labels))
        findings: dict[str, Finding] = {}
        for feeds, codes in sets:
            given, wanted = (
                side.run({name: array for name, array in {**feeds, **codes}.items() if name in side.names})
                for side in (self._ours, self._exact)
            )
            for finding in self._compare(given, wanted, codes, found):
                findings.setdefault(finding.node, finding)
        found.findings = tuple(findings.values())
        return found

    def _compare(
        self,
        given: Mapping[str, Array],
        wanted: Mapping[str, Array],
        codes: Mapping[str, Array],
        found: Arithmetic,
    ) -> Iterator[Finding]:
        for name, right in wanted.items():
            source = name.removesuffix(ANSWER)
            label = self._labels.get(source, f"output {name!r}")
            answer = given[name]
            if answer.shape != right.shape or (source in codes and codes[source].shape != answer.shape):
                yield Finding(label, f"its shape is {answer.shape}, the source's {right.shape}", "fault")
            elif right.dtype.kind in "iu":
                difference = np.abs(answer.astype(np.int64) - right.astype(np.int64))
                found.compared += difference.size
                found.off += int(np.count_nonzero(difference == _STEP))
                if (difference > _STEP).any():
                    count = int(np.count_nonzero(difference > _STEP))
                    furthest = f"up to {difference.max()} steps from exact arithmetic"
                    is_gross = difference.max() > self._coarse * 2 ** (8 * right.dtype.itemsize)
                    kind: Kind = "fault" if is_gross else "doubt"
                    yield Finding(label, f"{count:,} of {difference.size:,} results are {furthest}", kind)
            elif right.dtype.kind == "f" and right.size:
                if not np.array_equal(np.isfinite(answer), np.isfinite(right)):
                    yield Finding(
                        label, "its result is infinite or no number where exact arithmetic is not", "doubt"
                    )
                finite = np.isfinite(answer) & np.isfinite(right)
                error = np.abs(answer[finite].astype(np.float64) - right[finite].astype(np.float64))
                scale = float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
                worst = float(error.max(initial=0.0))
                share = worst / (scale or 1.0) if worst > _LEAST else 0.0
                if share > _FLOAT:
                    found.furthest = max(found.furthest, share)
                average = _mean_square(error) / (_mean_square(right[finite]) or 1.0) if share else 0.0
                if share > self._most[0] or average > self._most[1]:
                    far = f"up to {share:.1e} of their scale from exact arithmetic, {average:.1e} on average"
                    text = f"its floats are {far}"
                    yield Finding(label, text, "doubt")


def _mean_square(values: Array) -> float:
    """Return the square root of the mean of squares."""
    return float(np.sqrt(np.square(values.astype(np.float64)).mean())) if values.size else 0.0

"""Prove that a quantized artefact is its source with quantization in it (Pnueli et al. 1998, translation validation).

Four things are checked; docs/internals/validation.md has the argument why together they are a proof:

1. matches.py: node for node, both compute the same from the outputs back to the inputs, with the same attributes and
   constants.
2. parameters.py: every weight and bias is the source's, rounded.
3. ranges.py: every grid holds the values that the source has there on the fed samples, or what it cuts off is said.
4. arithmetic.py: the integers of each node are those of exact arithmetic, to one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Protocol

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import NOTE_KEY, QuantizationNote
from onnxport.runtimes.base import RunError
from onnxport.runtimes.ort.runtime import OrtRuntime
from onnxport.validate.translation.arithmetic import Arithmetic, ArithmeticCheck, OrtPieces
from onnxport.validate.translation.channel_factors import divide_channels
from onnxport.validate.translation.expansion import with_old_grids
from onnxport.validate.translation.findings import Finding
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.layouts.views import in_order
from onnxport.validate.translation.matches import Match, Matching, match_graphs
from onnxport.validate.translation.measured_sizes import with_measured_sizes
from onnxport.validate.translation.parameters import Product, check_products, products
from onnxport.validate.translation.ranges import Coverage, Observation, check_grids
from onnxport.validate.translation.reshapes import check_views

# Sets of inputs on which arithmetic is checked; more where that is all that is known of a part.
_CHECKED, _CHECKED_PARTS = 2, 6
_SHOWN = 3


@dataclass(frozen=True)
class Proof:
    """What was proven of an artefact, and what not.

    Attributes:
        matches: pairs of values that were found the same.
        weights: products whose weights and biases were compared.
        moved: those whose weights are rounded for the least error of the product, not to nearest.
        cut: weights that lie beyond the ends of their grid.
        coverages: of every grid.
        arithmetic: of every piece.
        rounding: the float type of 16 bits that values and constants may be rounded to. The arithmetic is fidelity's.
        parts: those of another form than the source's, which are compared by their answers alone.
        findings: places that are not proven, faults first.
    """

    matches: int = 0
    weights: int = 0
    moved: int = 0
    cut: int = 0
    coverages: Sequence[Coverage] = ()
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    rounding: str = ""
    parts: int = 0
    findings: Sequence[Finding] = ()

    @property
    def is_complete(self) -> bool:
        return not self.findings

    @property
    def faults(self) -> list[Finding]:
        return [each for each in self.findings if each.kind == "fault"]

    def __str__(self) -> str:
        if self.findings:
            named = "; ".join(map(str, self.findings[:_SHOWN]))
            more = f"; and {len(self.findings) - _SHOWN} more" if len(self.findings) > _SHOWN else ""
            return named + more
        if self.rounding:
            return f"{self.weights} products with each weight within two roundings to {self.rounding}"
        return ", ".join((self._weights(), self._grids(), self._integers(), *self._parts()))

    @property
    def summary(self) -> str:
        """What was checked, in few words."""
        if self.rounding:
            return f"each node is the source's, rounded to {self.rounding} ({self.weights} products)"
        return f"each node is the source's, quantized ({self.weights} products, {len(self.coverages)} grids)"

    def _weights(self) -> str:
        """Say how weights were rounded."""
        parts = [f"{self.weights} products with each weight within half a step"]
        if self.moved:
            parts.append(f"or in {self.moved} with less error than so")
        if self.cut:
            parts.append(f"but for {self.cut:,} beyond the ends of their grid")
        return " ".join(parts)

    def _grids(self) -> str:
        if not self.coverages:
            return "no grids of activations"
        cut = [each for each in self.coverages if each.cut]
        if not cut:
            return f"{len(self.coverages)} grids that hold every value fed"
        worst = max(cut, key=lambda each: each.share)
        name = worst.match.head.core.label
        return f"{len(self.coverages)} grids of which {len(cut)} cut off values fed, most {worst.share:.2%} at {name}"

    def _parts(self) -> list[str]:
        count = f"{self.parts} part" + ("s" if self.parts > 1 else "")
        return [f"{count} of another form compared by answers alone"] if self.parts else []

    def _integers(self) -> str:
        found = self.arithmetic
        if not found.compared:
            if found.furthest:
                return (
                    f"{found.pieces} pieces computed in floats, up to {found.furthest:.1e} of their scale from exact "
                    "arithmetic by the runtime's own rounding"
                )
            return f"{found.pieces} pieces within float32 noise of exact arithmetic"
        share = found.off / found.compared
        return f"{found.compared:,} integers within a step of exact arithmetic, {share:.2%} of them one off"


class Artefact(Protocol):
    """What a proof asks of the kind of file that is compared."""

    @property
    def graph(self) -> Graph:
        """Its normal form."""

    @property
    def note(self) -> QuantizationNote | None:
        """What it declares."""

    @property
    def parts(self) -> Sequence[object]:
        """Parts of another form than the source's, which are compared by their answers."""

    def match(self, source: Model, rounding: str) -> tuple[Graph, Matching]:
        """Return the source's normal form, and what matches.

        Args:
            rounding: see Graph.
        """

    def has(self, name: str) -> bool:
        """Return whether it can be cut at a float value."""

    def check_views(self, matching: Matching, original: Graph, feeds: Feeds) -> Iterator[Finding]:
        """Yield what the graphs alone do not tell of sizes."""

    def check_arithmetic(self, sets: Sequence[tuple[Feeds, dict[str, Array]]]) -> Arithmetic:
        """Compare its runtime with exact arithmetic.

        Args:
            sets: feeds, and what each grid makes of the source's values.
        """


class OnnxArtefact:
    """An ONNX model.

    Args:
        sizes: see Graph.
    """

    def __init__(self, model: Model, sizes: Mapping[str, Sequence[int]] | None = None) -> None:
        self._model, self._sizes, self.graph = model, sizes, Graph(model, sizes)
        self.parts: Sequence[object] = ()
        self.note = QuantizationNote.from_json(model.ir.metadata_props.get(NOTE_KEY))

    def match(self, source: Model, rounding: str) -> tuple[Graph, Matching]:
        """See Artefact."""
        original = Graph(source, self._sizes, rounding)
        return original, match_graphs(self.graph, original)

    def has(self, name: str) -> bool:
        """See Artefact."""
        return name in self._model.intermediate_values

    def check_views(self, matching: Matching, original: Graph, feeds: Feeds) -> Iterator[Finding]:
        """See Artefact."""
        return check_views(matching.views, original.model, self._model, feeds)

    def check_arithmetic(self, sets: Sequence[tuple[Feeds, dict[str, Array]]]) -> Arithmetic:
        """See Artefact."""
        expanded = self.graph.model if self._sizes is None else Graph(self._model).model
        moved = [
            (feeds, {name: self._as_computed(name, each) for name, each in codes.items()})
            for feeds, codes in sets
        ]
        codes = moved[0][1]
        with (
            OrtPieces(self._model, codes, is_exact=False) as ours,
            OrtPieces(with_old_grids(expanded), codes, is_exact=True) as exact,
        ):
            return ArithmeticCheck(ours, exact, ours.labels).run(moved)

    def _as_computed(self, name: str, values: Array) -> Array:
        """Return what the graph's normal form has under a name with the axes that the file has."""
        if name not in self.graph.layouts:
            return values
        sizes, axes = self.graph.layouts[name]
        if prod(sizes) != values.size:
            return values
        found = in_order(values.reshape(sizes), axes)
        return found.reshape(self.graph.shapes.get(name, found.shape))


def prove(
    source: Model,
    candidate: Model,
    sets: Sequence[Feeds],
    *,
    are_samples: bool = True,
    rounding: str = "",
) -> Proof:
    """Compare an ONNX artefact with the float model that it was made of.

    Args:
        sets: inputs to check grids and arithmetic on.
        are_samples: whether these are a user's; generated ones do not tell which means a calibration saw.
        rounding: the float type of 16 bits that values and constants may be rounded to; empty for none.
    """
    artefact = OnnxArtefact(candidate)
    sizes = {name: array.shape for name, array in sets[0].items()} if sets else {}
    source = divide_channels(source, artefact.note, sizes)
    original, matching = artefact.match(source, rounding)
    if sets and any(each.is_structure for each in matching.mismatches):
        # At known sizes more forms of one thing are the same.
        other = OnnxArtefact(candidate, sizes)
        form, fixed = other.match(source, rounding)
        if len(fixed.mismatches) < len(matching.mismatches):
            artefact, original, matching = other, form, fixed
            sets = _alike(sets, sets[0])
    return compare(original, artefact, sets, matching, are_samples=are_samples)


def compare_at_sizes(
    source: Model,
    open_artefact: Callable[[Feeds], Artefact],
    sets: Sequence[Feeds],
    first: Feeds,
    *,
    are_samples: bool,
    rounding: str,
) -> Proof:
    """Compare an artefact that is read at the sizes of one set, `first`; sets of other sizes are left out."""
    artefact = open_artefact(first)
    original, matching = artefact.match(source_at(source, artefact, first), rounding)
    return compare(original, artefact, _alike(sets, first), matching, are_samples=are_samples)


def source_at(source: Model, artefact: Artefact, feeds: Feeds) -> Model:
    """Return the source as it is compared with an artefact at the sizes of one set of inputs."""
    sizes = {name: array.shape for name, array in feeds.items()}
    return divide_channels(with_measured_sizes(source, feeds), artefact.note, sizes)


def _alike(sets: Sequence[Feeds], first: Feeds) -> list[Feeds]:
    """Return the sets of the same sizes."""
    sizes = {name: array.shape for name, array in first.items()}
    return [each for each in sets if {name: array.shape for name, array in each.items()} == sizes]


def compare(
    original: Graph,
    artefact: Artefact,
    sets: Sequence[Feeds],
    matching: Matching,
    *,
    are_samples: bool,
) -> Proof:
    """Compare an artefact with its source's normal form; see `prove`."""
    quantized, note = artefact.graph, artefact.note
    found = list(products(matching.matches, has_integers=not original.rounding))
    if original.rounding and not any(each.head.grids for each in matching.matches):
        return _compare_floats(original, artefact, sets, matching, found)
    declared = {} if note is None else note.means
    uncertain = [each for each in found if each.name not in declared and not each.is_bias_rounded]
    moved = [each for each in found if note is None and not each.is_weight_rounded]
    places = {name: match for name, match in _float_places(matching, quantized).items() if artefact.has(name)}
    observation = Observation(matching.matches, uncertain, moved, places)
    arithmetic = _observe(observation, original, artefact, sets)
    if artefact.parts or any(each.is_structure for each in matching.mismatches):
        # Errors travel where nothing says what a piece should be given, and a part may stand where none is.
        arithmetic.findings = tuple(replace(each, kind="doubt") for each in arithmetic.findings)
    findings = [
        *_structure(matching),
        *artefact.check_views(matching, original, sets[0] if sets else {}),
        *_narrow(matching, original.rounding),
        *_parameters(matching, found, note, observation, is_sure=are_samples),
        *check_grids(observation.coverages, note, is_sure=are_samples),
        *arithmetic.findings,
    ]
    cut = sum({each.core.value: each.cut_weights() for each in found}.values())
    counts = len(matching.matches), _count(found), _count(moved), cut
    parts = len(artefact.parts)
    return Proof(*counts, observation.coverages, arithmetic, parts=parts, findings=_faults_first(findings))


def _compare_floats(
    original: Graph, artefact: Artefact, sets: Sequence[Feeds], matching: Matching, found: list[Product]
) -> Proof:
    """Compare an artefact without integers: its arithmetic is fidelity's."""
    findings = [
        *_structure(matching, may_move=True),
        *artefact.check_views(matching, original, sets[0] if sets else {}),
        *_narrow(matching, original.rounding),
    ]
    for product in found:
        is_unsure = (product.match.value, product.match.original) in matching.unsure
        for finding in product.check_rounding(original.rounding):
            findings.append(replace(finding, kind="doubt") if is_unsure else finding)
    counts = len(matching.matches), _count(found)
    return Proof(*counts, rounding=original.rounding, findings=_faults_first(findings))


def _faults_first(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda each: each.kind != "fault")


def _count(found: Sequence[Product]) -> int:
    return len({each.core.value for each in found})


def _float_places(matching: Matching, quantized: Graph) -> dict[str, Match]:
    """Return the float values that products with rounded weights read, by name, with their matches.

    They have no grid of their own: their scale is found at run time, or weights alone are rounded.
    """
    found = {}
    known = {(each.value, each.original): each for each in matching.matches}
    for match in matching.matches:
        if match.product is None or match.operand is None or match.product.weight is None:
            continue
        read = known.get(match.operand)
        if read is None or read.head.grids or match.product.weight.is_exact:
            continue
        value = quantized.source(match.operand[0])
        if value.producer() is not None and not value.is_graph_output() and value.name:
            found[value.name] = read
    return found


def _observe(
    observation: Observation, original: Graph, artefact: Artefact, sets: Sequence[Feeds]
) -> Arithmetic:
    """Run the source on every set, and the artefact's pieces on some."""
    kept: list[tuple[Feeds, dict[str, Array]]] = []
    checked = _CHECKED_PARTS if artefact.parts else _CHECKED
    with OrtRuntime.of_model(original.model) as runtime:
        for number, feeds in enumerate(sets):
            codes = observation.add(runtime, feeds, keep=number < checked)
            if number < checked:
                kept.append((feeds, codes))
    if not kept:
        return Arithmetic(findings=(Finding("the file", "there were no inputs to compute on", "doubt"),))
    try:
        return artefact.check_arithmetic(kept)
    except (InputError, RunError) as error:
        why = f"its arithmetic could not be checked: {error.why or error}"
        return Arithmetic(findings=(Finding("the file", why, "doubt"),))


def _structure(matching: Matching, *, may_move: bool = False) -> list[Finding]:
    """Return what differs in structure: an operator elsewhere is a doubt, another setting of the same one a fault.

    Args:
        may_move: whether a right file may compute x w + b w for (x + b) w, which differ at two values: these are a
            doubt, then. Integers are held to the source's own order, since their grids hang on it.
    """
    settings = [each for each in matching.mismatches if not (each.is_structure or each.is_near)]
    may_be_moved = may_move and len({each.pair for each in settings}) > 1
    sure = [each for each in settings if not may_be_moved and each.pair not in matching.unsure]
    return [
        Finding(each.core.label, each.reason, "fault" if each in sure else "doubt")
        for each in matching.mismatches
    ]


def _narrow(matching: Matching, allowed: str) -> Iterator[Finding]:
    """Yield values that pass a float type of 16 bits which the source has not there."""
    for match in matching.matches:
        if extra := set(match.head.casts) - set(match.source.casts) - {allowed}:
            yield Finding(match.head.core.label, f"it is rounded to {', '.join(sorted(extra))}", "doubt")


def _parameters(
    matching: Matching,
    found: list[Product],
    note: QuantizationNote | None,
    observation: Observation,
    *,
    is_sure: bool,
) -> Iterator[Finding]:
    """Yield what is wrong with weights and biases; a doubt where two products may be a pair by mistake.

    Args:
        is_sure: whether measured means are those that a calibration may have seen.
    """
    uncertain = {each.name for each in observation.needed}
    for product, finding in check_products(found, note, observation.moments, observation.rows):
        pair = product.match.value, product.match.original
        is_measured = product.name in uncertain and product.is_weight_rounded
        is_doubt = pair in matching.unsure or (is_measured and not is_sure)
        yield replace(finding, kind="doubt") if is_doubt else finding

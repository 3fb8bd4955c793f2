"""Match the inputs and outputs of two models, as the user maps them or by likeness; nothing is matched silently."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import Dim, TensorSpec

# Reference name to candidate name.
Names = Mapping[str, str]
Pairs = list[tuple[TensorSpec, TensorSpec]]

# Exporters put this around a name, TensorFlow above all.
_AROUND = re.compile(r"^serving_default_|:\d+$")
_ALIKE = 0.75  # difflib's ratio from which two names count as one
_KEEP_FLOATS = (
    "a lower precision needs the same inputs and outputs as its reference: keep their dtypes when you convert "
    "(onnxconverter-common: convert_float_to_float16(model, keep_io_types=True))"
)


class Signature(Protocol):
    """A model's inputs and outputs, in the source's axis order."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...


def split_map(
    given: Names, reference: Signature, candidate: Signature, names: tuple[str, str]
) -> tuple[Names, Names]:
    """Split the user's map, REFERENCE=CANDIDATE, into that of the inputs and that of the outputs.

    Args:
        names: of the two models, for errors.

    Raises:
        UsageError: a name that a side does not have, or two tensors that would get one name.
    """
    inputs, outputs = (
        {name: given[name] for name in given if name in {spec.name for spec in side}}
        for side in (reference.inputs, reference.outputs)
    )
    for name in given:
        if name not in inputs and name not in outputs:
            raise _unknown("", name, names[0], (*reference.inputs, *reference.outputs))
    _check_map("input", inputs, candidate.inputs, names[1])
    _check_map("output", outputs, candidate.outputs, names[1])
    return inputs, outputs


def _check_map(kind: str, wanted: Names, theirs: Sequence[TensorSpec], model: str) -> None:
    for name in wanted.values():
        if name not in {spec.name for spec in theirs}:
            raise _unknown(f"{kind} ", name, model, theirs)
    if not wanted:
        return
    ours = {candidate: reference for reference, candidate in wanted.items()}
    if twice := _duplicate(wanted.values()):
        raise UsageError(f"--map gives the {kind} {twice!r} of {model} two names", fix="map it once")
    if twice := _duplicate(ours.get(spec.name, spec.name) for spec in theirs):
        raise UsageError(
            f"--map gives two {kind}s of {model} the name {twice!r}",
            fix=f"map the candidate's own {twice!r} as well",
        )


def _duplicate(names: Iterable[str]) -> str:
    """Return a name that occurs twice; empty for none."""
    return next((name for name, count in Counter(names).items() if count > 1), "")


def _unknown(kind: str, name: str, model: str, known: Iterable[TensorSpec]) -> UsageError:
    has = ", ".join(repr(spec.name) for spec in known)
    return UsageError(
        f"--map names the {kind or 'tensor '}{name!r}, which {model} does not have", fix=f"it has {has}"
    )


def check_tensors(model: Signature, name: str) -> None:
    """Refuse a model with values that are no tensors (UsageError)."""
    for spec in (*model.inputs, *model.outputs):
        if "(" in spec.dtype:
            raise UsageError(
                f"{spec.name!r} of {name} is not a tensor but {spec.dtype}",
                why="only tensors can be compared",
                fix="export the model without it (scikit-learn: zipmap=False)",
            )


def check_signatures(
    reference: Signature,
    candidate: Signature,
    names: tuple[str, str],
    declared: Sequence[TensorSpec] = (),
) -> None:
    """Refuse a pair whose names, counts, ranks or dtypes differ (SignatureMismatch).

    Args:
        declared: outputs as the reference's file has them, whose ranks its answers may contradict: a copy of the file
            declares them so, too.
    """
    check_tensors(candidate, names[1])
    if _equal_specs(reference.inputs, candidate.inputs) and _equal_specs(declared, candidate.outputs):
        return
    same = all(
        _equal_specs(ours, theirs)
        for ours, theirs in ((reference.inputs, candidate.inputs), (reference.outputs, candidate.outputs))
    )
    if not same:
        raise _mismatch(reference, candidate, names)


def _equal_specs(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> bool:
    known = {spec.name: spec for spec in theirs}
    return len(ours) == len(theirs) and all(
        spec.name in known and _compatible(spec, known[spec.name]) for spec in ours
    )


def _compatible(ours: TensorSpec, theirs: TensorSpec) -> bool:
    """Compare dtype and rank. An empty shape is a scalar or an unknown rank; runs show whether sizes fit."""
    ranks = len(ours.shape) == len(theirs.shape) or not ours.shape or not theirs.shape
    return ranks and ours.dtype == theirs.dtype


class SignatureMismatch(UsageError):
    """Two models with different tensors; `rows` has a line per tensor, with likely pairs side by side."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", rows: Sequence[str] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.rows = tuple(rows)

    def __str__(self) -> str:
        return "\n".join([f"{self.what}:", *self.rows, self.fix])


def _mismatch(reference: Signature, candidate: Signature, names: tuple[str, str]) -> SignatureMismatch:
    kinds = ("input", reference.inputs, candidate.inputs), ("output", reference.outputs, candidate.outputs)
    pairs = {kind: likely_pairs(ours, theirs) for kind, ours, theirs in kinds}
    table = [("", *names)]
    for kind, ours, theirs in kinds:
        table += [(kind, our, their) for our, their in _rows(ours, theirs, pairs[kind])]
    widths = [max(len(row[column]) for row in table) for column in range(2)]
    complete = all(len(pairs[kind]) == len(ours) == len(theirs) for kind, ours, theirs in kinds)
    floats = any(_other_float(ours, theirs) for _, ours, theirs in kinds)
    return SignatureMismatch(
        "the two models do not take and give the same tensors",
        rows=[f"  {kind:<{widths[0]}}  {our:<{widths[1]}}  {their}" for kind, our, their in table],
        fix=_KEEP_FLOATS if floats else _advice([p for found in pairs.values() for p in found], complete),
    )


def _other_float(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> bool:
    """Return whether a tensor has another float type on the other side."""
    known = {spec.name: spec for spec in theirs}
    pairs = [(our, known[our.name]) for our in ours if our.name in known]
    return any(
        our.dtype != their.dtype and "float" in our.dtype and "float" in their.dtype for our, their in pairs
    )


def _rows(
    ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec], pairs: Pairs
) -> Iterator[tuple[str, str]]:
    """Yield both sides in the order of the first, then the second's other tensors.

    A tensor without a pair stands beside the one of its name, else beside the one in its place.
    """
    beside = {our.name: their for our, their in pairs}
    left = {their.name: their for their in theirs if their not in beside.values()}
    for our in ours:
        if our.name not in beside and our.name in left:
            beside[our.name] = left.pop(our.name)
    for our in ours:
        if our.name not in beside and left:
            beside[our.name] = left.pop(next(iter(left)))
        yield str(our), str(beside.get(our.name, "-"))
    for their in left.values():
        yield "-", str(their)


def _advice(pairs: Pairs, complete: bool) -> str:
    renames = [(our.name, their.name) for our, their in pairs if our.name != their.name]
    found = ", ".join(f"{our!r} is {their!r}" for our, their in renames)
    if complete:
        options = quote_option("--map", *(f"{our}={their}" for our, their in renames))
        return f"likely {found}; if so, give {options}"
    fix = "export both with the same inputs and outputs, of equal dtypes and ranks"
    return f"likely {found}, but the others do not fit; {fix}" if found else fix


def unfit_sizes(shapes: Mapping[str, Sequence[Dim]], candidate: Sequence[TensorSpec]) -> str:
    """Return why the candidate cannot take every size that the reference takes; empty when it can.

    Args:
        shapes: the reference's inputs with the sizes that the user gave.
        candidate: the candidate's inputs, in the source's axis order.
    """
    for spec in candidate:
        wanted = shapes[spec.name]
        if len(wanted) != len(spec.shape):
            continue
        for ours, theirs in zip(wanted, spec.shape, strict=True):
            if isinstance(theirs, int) and ours != theirs:
                takes = ", ".join("?" if dim is None else str(dim) for dim in wanted)
                fixed = ",".join(
                    "?" if dim is None or isinstance(dim, str) else str(dim) for dim in spec.shape
                )
                return (
                    f"it takes {spec} where the reference takes [{takes}]; "
                    f"if that is meant, give {quote_option('--shape', f'{spec.name}={fixed}')}"
                )
    return ""


def likely_pairs(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> Pairs:
    """Pair `ours` with `theirs`: by equal names, by similar ones, then by position.

    Only tensors of one dtype whose shapes can be the same are paired; in the order of `ours`, each at most once.
    """
    pairs: dict[str, TensorSpec] = {}
    for score in _SCORES:
        taken = {spec.name for spec in pairs.values()}
        fitting = [
            (-score(our.name, their.name), our, their)
            for our in ours
            for their in theirs
            if our.name not in pairs and their.name not in taken and _fits(our, their)
        ]
        for negative, our, their in sorted(fitting, key=lambda each: each[0]):  # stable: else by position
            taken = {spec.name for spec in pairs.values()}
            if negative < 0 and our.name not in pairs and their.name not in taken:
                pairs[our.name] = their
    return [(our, pairs[our.name]) for our in ours if our.name in pairs]


def _fits(ours: TensorSpec, theirs: TensorSpec) -> bool:
    """Return whether both can be one tensor: the same dtype, rank and sizes; an open size fits any."""
    if ours.dtype != theirs.dtype or len(ours.shape) != len(theirs.shape):
        return False
    known = (isinstance(a, int) and isinstance(b, int) for a, b in zip(ours.shape, theirs.shape, strict=True))
    return all(a == b for a, b, both in zip(ours.shape, theirs.shape, known, strict=True) if both)


def _similarity(ours: str, theirs: str) -> float:
    ratio = difflib.SequenceMatcher(None, ours.lower(), theirs.lower()).ratio()
    return ratio if ratio >= _ALIKE else 0.0


# Likeness of two names, the strictest rule first; 0 for no pair.
_SCORES: tuple[Callable[[str, str], float], ...] = (
    lambda ours, theirs: float(ours == theirs),
    lambda ours, theirs: float(_AROUND.sub("", ours).lower() == _AROUND.sub("", theirs).lower()),
    _similarity,
    lambda ours, theirs: 1.0,
)

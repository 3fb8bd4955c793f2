"""Which tensor of the candidate is which of the reference: as the user says, or as it seems."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import TensorSpec

# Reference name to candidate name.
Names = Mapping[str, str]
Pairs = list[tuple[TensorSpec, TensorSpec]]

# What exporters put around a name, TensorFlow's above all.
_AROUND = re.compile(r"^serving_default_|:\d+$")
_ALIKE = 0.75  # difflib's ratio from which two names are taken for one


class Signed(Protocol):
    """What takes and gives tensors, in the source's axis order."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...


def mapped(given: Names, reference: Signed, candidate: Signed, names: tuple[str, str]) -> tuple[Names, Names]:
    """The user's map, REFERENCE=CANDIDATE, as that of the inputs and that of the outputs.

    Args:
        names: what to call the two models in an error.

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
    _check("input", inputs, candidate.inputs, names[1])
    _check("output", outputs, candidate.outputs, names[1])
    return inputs, outputs


def _check(kind: str, wanted: Names, theirs: Sequence[TensorSpec], model: str) -> None:
    for name in wanted.values():
        if name not in {spec.name for spec in theirs}:
            raise _unknown(f"{kind} ", name, model, theirs)
    if not wanted:
        return
    called = [spec.name for spec in renamed(theirs, wanted)]
    if twice := _twice(wanted.values()):
        raise UsageError(f"--map gives the {kind} {twice!r} of {model} two names", fix="map it once")
    if twice := _twice(called):
        raise UsageError(
            f"--map gives two {kind}s of {model} the name {twice!r}",
            fix=f"say which one its own {twice!r} is",
        )


def _twice(names: Iterable[str]) -> str:
    """A name that occurs twice; empty when none does."""
    return next((name for name, count in Counter(names).items() if count > 1), "")


def _unknown(kind: str, name: str, model: str, known: Iterable[TensorSpec]) -> UsageError:
    has = ", ".join(repr(spec.name) for spec in known)
    return UsageError(
        f"--map names the {kind or 'tensor '}{name!r}, which {model} does not have", fix=f"it has {has}"
    )


def renamed(theirs: Iterable[TensorSpec], names: Names) -> tuple[TensorSpec, ...]:
    """The candidate's specs under the reference's names."""
    ours = {candidate: reference for reference, candidate in names.items()}
    return tuple(TensorSpec(ours.get(spec.name, spec.name), spec.dtype, spec.shape) for spec in theirs)


def likely(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec]) -> Pairs:
    """Which of `theirs` is which of `ours`: by equal names, by similar ones, then by position.

    Only tensors of one dtype whose shapes can be the same are paired; in the order of `ours`, each at most once.
    """
    pairs: dict[str, TensorSpec] = {}
    for rule in (_same_name, _same_core, _alike, _anything):
        taken = {spec.name for spec in pairs.values()}
        fitting = [
            (-rule(our, their), our, their)
            for our in ours
            for their in theirs
            if our.name not in pairs and their.name not in taken and fits(our, their)
        ]
        for score, our, their in sorted(fitting, key=lambda each: each[0]):  # stable: else by position
            if (
                score < 0
                and our.name not in pairs
                and their.name not in {spec.name for spec in pairs.values()}
            ):
                pairs[our.name] = their
    return [(our, pairs[our.name]) for our in ours if our.name in pairs]


def fits(ours: TensorSpec, theirs: TensorSpec) -> bool:
    """Whether both can be one tensor: the same dtype, rank and sizes; an open size fits any."""
    if ours.dtype != theirs.dtype or len(ours.shape) != len(theirs.shape):
        return False
    known = (isinstance(a, int) and isinstance(b, int) for a, b in zip(ours.shape, theirs.shape, strict=True))
    return all(a == b for a, b, both in zip(ours.shape, theirs.shape, known, strict=True) if both)


def _same_name(ours: TensorSpec, theirs: TensorSpec) -> float:
    return float(ours.name == theirs.name)


def _same_core(ours: TensorSpec, theirs: TensorSpec) -> float:
    return float(_AROUND.sub("", ours.name).lower() == _AROUND.sub("", theirs.name).lower())


def _alike(ours: TensorSpec, theirs: TensorSpec) -> float:
    ratio = difflib.SequenceMatcher(None, ours.name.lower(), theirs.name.lower()).ratio()
    return ratio if ratio >= _ALIKE else 0.0


def _anything(ours: TensorSpec, theirs: TensorSpec) -> float:
    return 1.0

"""The one way to write an input's shape: `NAME=1,3,?,224`, split at the last `=` since ONNX names carry `:` and `/`.

A dimension is a size, `?` for one that stays open, `1..8` for one that stays open within bounds, or `224|320` for one
that will be one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator

from onnxport.core.errors import UsageError
from onnxport.core.named_values import parse_pairs
from onnxport.formats.artifact import Dim, TensorSpec

# A dimension that the user gave: a size, None for one that stays open, or the text of its limits ("1..8", "224|320").
GivenShape = tuple[int | str | None, ...]

_LARGEST = 2**31 - 1

_FORM = "write NAME=1,3,224,224, with ? for an open dimension, 1..8 for one within bounds"


@dataclass(frozen=True)
class Limit:
    """The sizes that an open dimension may take.

    Attributes:
        least, most: the bounds.
        choices: the only sizes, if they were enumerated; in the user's order.
    """

    least: int
    most: int
    choices: tuple[int, ...] = ()

    def nearest(self, size: int) -> int:
        """The allowed size that is nearest to `size`."""
        if self.choices:
            return min(self.choices, key=lambda choice: abs(choice - size))
        return min(max(size, self.least), self.most)

    def __contains__(self, size: int) -> bool:
        return self.nearest(size) == size


def parse_shapes(
    texts: str | Sequence[str] | Mapping[str, Sequence[int | str | None]],
) -> dict[str, GivenShape]:
    """Reads `NAME=DIM,DIM,...` texts or a single one, or takes a mapping as Python callers write it.

    Raises:
        UsageError: a text of another form, or a name given twice.
    """
    pairs = parse_pairs(texts, what="shapes", form=_FORM)
    read = _sizes if isinstance(texts, Mapping) else _dimensions
    return {name: read(shape, name) for name, shape in pairs.items()}


def _dimensions(text: object, name: str) -> GivenShape:
    dims = str(text).strip()
    return tuple(_dimension(dim.strip(), f"{name}={dims}") for dim in dims.split(",")) if dims else ()


def _sizes(shape: object, name: str) -> GivenShape:
    if isinstance(shape, str):
        return _dimensions(shape, name)
    if not isinstance(shape, Sequence):
        raise UsageError(
            f"the shape of input {name!r} is not given by {shape!r}",
            fix="give a tuple of sizes, with None for an open dimension",
        )
    return tuple(
        _dimension(dim.strip(), f"{name}={','.join(map(str, shape))}") if isinstance(dim, str) else dim
        for dim in shape
    )


def _dimension(text: str, whole: str) -> int | str | None:
    if text == "?":
        return None
    if ".." in text or "|" in text:
        return _limited(text, whole)
    return _size(text, whole)


def _limited(text: str, whole: str) -> int | str:
    """The text of the limits in one form; a size where they leave one."""
    if "|" in text:
        sizes = [_size(each.strip(), whole) for each in text.split("|")]
        return "|".join(map(str, sizes))
    least, most = (_size(each.strip(), whole) for each in text.split("..", 1))
    if least > most:
        raise UsageError(
            f"{text!r} in the shape {whole!r} ends below its start", fix=f"write {most}..{least}"
        )
    return f"{least}..{most}" if least < most else least


def _size(text: str, whole: str) -> int:
    if text.isdecimal() and int(text) > 0:
        if int(text) > _LARGEST:
            raise UsageError(
                f"{text} in the shape {whole!r} is too large", why=f"a dimension has at most {_LARGEST}"
            )
        return int(text)
    raise UsageError(f"{text!r} in the shape {whole!r} is no dimension", fix="give a size of 1 or more, or ?")


def limit_of(given: int | str | None) -> Limit | None:
    """The limits that a given dimension sets; None for a size or `?`."""
    if not isinstance(given, str):
        return None
    if "|" in given:
        sizes = tuple(int(each) for each in given.split("|"))
        return Limit(min(sizes), max(sizes), sizes)
    least, most = given.split("..")
    return Limit(int(least), int(most))


# How every params model takes shapes.
Shapes = Annotated[dict[str, GivenShape], BeforeValidator(parse_shapes)]


def apply_shapes(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, GivenShape]
) -> dict[str, tuple[Dim, ...]]:
    """Every input's shape with the given sizes put in; a `?` leaves the model's own dimension.

    An input that is not given a shape follows the others: open dimensions of one name are one size to ONNX.

    Raises:
        UsageError: a name that the model does not have, or sizes that contradict the model.
    """
    known = {spec.name: spec for spec in inputs}
    for name in shapes:
        if name not in known:
            listed = ", ".join(repr(spec.name) for spec in inputs) or "none"
            raise UsageError(f"the model has no input {name!r}", fix=f"its inputs are {listed}")
    merged = {spec.name: _merged(spec, shapes.get(spec.name)) for spec in inputs}
    sizes = _sizes_of_names([(known[name].shape, merged[name]) for name in shapes])
    return {
        name: dims if name in shapes else tuple(sizes.get(dim, dim) for dim in dims)
        for name, dims in merged.items()
    }


def limits(inputs: Sequence[TensorSpec], shapes: Mapping[str, GivenShape]) -> dict[str, dict[int, Limit]]:
    """Input name to axis to the limits that the user gave it, itself or through another dimension of the same name.

    Raises:
        UsageError: numbers of choices that differ within one input.
    """
    found = {
        spec.name: {
            axis: limit for axis, dim in enumerate(shapes.get(spec.name, ())) if (limit := limit_of(dim))
        }
        for spec in inputs
    }
    names = _limits_of_names(inputs, found)
    for spec in inputs:
        if spec.name not in shapes:
            found[spec.name] = {axis: names[dim] for axis, dim in enumerate(spec.shape) if dim in names}
        counts = {len(limit.choices) for limit in found[spec.name].values() if limit.choices}
        if len(counts) > 1:
            raise UsageError(
                f"input {spec.name!r} is given different numbers of choices for its dimensions",
                why="the first of each belong together, the second of each, and so on",
                fix="give every dimension with choices as many of them",
            )
    return found


def _limits_of_names(
    inputs: Sequence[TensorSpec], found: Mapping[str, Mapping[int, Limit]]
) -> dict[Dim, Limit]:
    """What each named dimension was limited to, where it is one thing everywhere."""
    named: dict[Dim, set[Limit]] = {}
    for spec in inputs:
        for axis, limit in found[spec.name].items():
            name = spec.shape[axis] if axis < len(spec.shape) else None
            if isinstance(name, str) and name not in ("", "?"):
                named.setdefault(name, set()).add(limit)
    return {name: limited.pop() for name, limited in named.items() if len(limited) == 1}


def _sizes_of_names(pinned: Sequence[tuple[Sequence[Dim], Sequence[Dim]]]) -> dict[Dim, Dim]:
    """What each named dimension became, where it became the same everywhere."""
    found: dict[Dim, set[Dim]] = {}
    for own, given in pinned:
        for name, size in zip(own, given, strict=True):
            if isinstance(name, str) and name not in ("", "?"):  # which some exporters write for none
                found.setdefault(name, set()).add(size)
    return {name: sizes.pop() for name, sizes in found.items() if len(sizes) == 1}


def _merged(spec: TensorSpec, given: GivenShape | None) -> tuple[Dim, ...]:
    if given is None:
        return spec.shape
    fits = len(given) == len(spec.shape) and all(
        size is None or not isinstance(dim, int) or size == dim
        for size, dim in zip(given, spec.shape, strict=True)
    )
    if not fits:
        asked = ",".join("?" if size is None else str(size) for size in given)
        raise UsageError(
            f"the shape {asked} contradicts input {spec}",
            fix="give as many dimensions as it has and change only those that are open",
        )
    return tuple(size if isinstance(size, int) else dim for size, dim in zip(given, spec.shape, strict=True))

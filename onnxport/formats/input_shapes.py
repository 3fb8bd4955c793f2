"""The syntax of input shapes: `NAME=1,3,?,224`, split at the last `=`.

A dimension is a size (0 for an empty cache), `?` for an open one, `1..8` for an open one within bounds, or `224|320`
for a choice of sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BeforeValidator

from onnxport.core.errors import UsageError
from onnxport.core.named_values import parse_pairs
from onnxport.formats.artifact import Dim, TensorSpec

# A user's shape; a dimension is a size, None for an open one, or the text of its limits ("1..8", "224|320").
GivenShape = tuple[int | str | None, ...]

T = TypeVar("T")
_LARGEST = 2**31 - 1

_FORM = "write NAME=1,3,224,224, with ? for an open dimension, 1..8 for one within bounds"


@dataclass(frozen=True)
class Limit:
    """The sizes that an open dimension may take."""

    # least, most: the bounds.
    least: int
    most: int
    choices: tuple[int, ...] = ()  # the only sizes, in the user's order; empty for bounds

    def nearest(self, size: int) -> int:
        """Return the allowed size that is nearest to `size`."""
        if self.choices:
            return min(self.choices, key=lambda choice: abs(choice - size))
        return min(max(size, self.least), self.most)

    def __contains__(self, size: int) -> bool:
        return self.nearest(size) == size


def parse_shapes(
    texts: str | Sequence[str] | Mapping[str, Sequence[int | str | None]],
) -> dict[str, GivenShape]:
    """Parse one or several texts `NAME=DIM,DIM,...` (UsageError); Python callers may pass a mapping."""
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
            f"{shape!r} is not a shape for input {name!r}",
            fix="give a tuple of sizes, with None for an open dimension",
        )
    return tuple(
        _dimension(dim.strip(), f"{name}={','.join(map(str, shape))}") if isinstance(dim, str) else dim
        for dim in shape
    )


def _dimension(text: str, shape: str) -> int | str | None:
    if text == "?":
        return None
    if ".." in text or "|" in text:
        return _normalize_limits(text, shape)
    return 0 if text == "0" else _size(text, shape)  # an empty cache


def _normalize_limits(text: str, shape: str) -> int | str:
    """Return the text of the limits in canonical form; a size where they allow one only."""
    if "|" in text:
        sizes = [_size(each.strip(), shape) for each in text.split("|")]
        return "|".join(map(str, sizes))
    least, most = (_size(each.strip(), shape) for each in text.split("..", 1))
    if least > most:
        raise UsageError(
            f"{text!r} in the shape {shape!r} ends below its start", fix=f"write {most}..{least}"
        )
    return f"{least}..{most}" if least < most else least


def _size(text: str, shape: str) -> int:
    if text.isdecimal() and int(text) > 0:
        if int(text) > _LARGEST:
            raise UsageError(f"{text} in the shape {shape!r} is too large", fix=f"give at most {_LARGEST}")
        return int(text)
    raise UsageError(
        f"{text!r} in the shape {shape!r} is not a dimension", fix="give a size, or ?; bounds begin at 1"
    )


def parse_limit(given: int | str | None) -> Limit | None:
    """Return the limits of a given dimension; None for a size or `?`."""
    if not isinstance(given, str):
        return None
    if "|" in given:
        sizes = tuple(int(each) for each in given.split("|"))
        return Limit(min(sizes), max(sizes), sizes)
    least, most = given.split("..")
    return Limit(int(least), int(most))


# The field type of params models.
Shapes = Annotated[dict[str, GivenShape], BeforeValidator(parse_shapes)]


def apply_shapes(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, GivenShape]
) -> dict[str, tuple[Dim, ...]]:
    """Return every input's shape with the given sizes; `?` leaves the model's own dimension.

    An input without a given shape follows the others: open dimensions of one name have one size in ONNX. UsageError for
    an unknown input, or sizes that contradict the model.
    """
    known = {spec.name: spec for spec in inputs}
    for name in shapes:
        if name not in known:
            listed = ", ".join(repr(spec.name) for spec in inputs) or "none"
            raise UsageError(f"the model has no input {name!r}", fix=f"its inputs are {listed}")
    merged = {spec.name: _merge(spec, shapes.get(spec.name)) for spec in inputs}
    sizes = _agreed(pair for name in shapes for pair in zip(known[name].shape, merged[name], strict=True))
    return {
        name: dims if name in shapes else tuple(sizes.get(dim, dim) for dim in dims)
        for name, dims in merged.items()
    }


def size_limits(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, GivenShape]
) -> dict[str, dict[int, Limit]]:
    """Return input name -> axis -> the user's limits, of the axis or of a dimension of the same name.

    Raises UsageError if the dimensions of one input have different numbers of choices.
    """
    found = {
        spec.name: {
            axis: limit for axis, dim in enumerate(shapes.get(spec.name, ())) if (limit := parse_limit(dim))
        }
        for spec in inputs
    }
    # Limits of dimensions of one name, where they are the same everywhere.
    names = _agreed(
        (spec.shape[axis], limit)
        for spec in inputs
        for axis, limit in found[spec.name].items()
        if axis < len(spec.shape)
    )
    for spec in inputs:
        if spec.name not in shapes:
            found[spec.name] = {axis: names[dim] for axis, dim in enumerate(spec.shape) if dim in names}
        counts = {len(limit.choices) for limit in found[spec.name].values() if limit.choices}
        if len(counts) > 1:
            raise UsageError(
                f"the dimensions of input {spec.name!r} have different numbers of choices",
                why="the first choices of all dimensions belong together, then the second ones, and so on",
                fix="give every dimension the same number of choices",
            )
    return found


def _agreed(given: Iterable[tuple[Dim, T]]) -> dict[Dim, T]:
    """Return what is given for each named dimension, where it is the same everywhere."""
    found: dict[Dim, set[T]] = {}
    for name, value in given:
        if isinstance(name, str) and name not in ("", "?"):  # some exporters write these for no name
            found.setdefault(name, set()).add(value)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _merge(spec: TensorSpec, given: GivenShape | None) -> tuple[Dim, ...]:
    if given is None:
        return spec.shape
    fits = len(given) == len(spec.shape) and all(
        size is None or not isinstance(dim, int) or size == dim
        for size, dim in zip(given, spec.shape, strict=True)
    )
    if not fits:
        text = ",".join("?" if size is None else str(size) for size in given)
        is_of_rank = len(given) == len(spec.shape)
        raise UsageError(
            f"the shape {text} contradicts input {spec}",
            why="the file fixes sizes, and --shape only fills open ones" if is_of_rank else "",
            fix="export the model again with these dimensions open, or give each a name in the file: "
            "set its dim_param with the onnx package"
            if is_of_rank
            else "give as many dimensions as it has",
        )
    return tuple(size if isinstance(size, int) else dim for size, dim in zip(given, spec.shape, strict=True))

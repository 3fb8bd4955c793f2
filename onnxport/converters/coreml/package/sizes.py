"""The sizes of a package's inputs: Core ML wants finite bounds or a list of shapes for open dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.input_shapes import GivenShape, Limit, size_limits
from onnxport.samples.sizes import OpenSizes

# The largest size of an open dimension without a bound from the user: of a batch, of a table's rows, and of any other
# dimension. The sizes that validation uses are smaller (samples/sizes.py, validate/input_sets.py).
_LARGEST_BATCH, _LARGEST_TABLE, _LARGEST = 64, 1024, 16384


@dataclass(frozen=True)
class Sizes:
    """The shapes in an input's description.

    Attributes:
        default: the shape that Core ML assumes before it gets an input.
        bounds: per axis; empty for an input of one shape or of enumerated shapes.
        choices: the enumerated shapes, the default among them.
    """

    default: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()


def input_sizes(
    inputs: Sequence[TensorSpec], shapes: Mapping[str, GivenShape], *, several_enumerated: bool
) -> tuple[dict[str, Sizes], tuple[str, ...]]:
    """Return input name to sizes, and notes on bounds that the user did not give.

    Args:
        shapes: the user's (`--shape`).
        several_enumerated: whether the target takes enumerated shapes at more than one input.

    Raises:
        UsageError: choices that Core ML does not support.
    """
    given = size_limits(inputs, shapes)
    open_sizes = OpenSizes(inputs, {spec.name: spec.shape for spec in inputs}, given)
    usual = next(open_sizes.proposals(1), {})
    batches = open_sizes.batch_axes
    found: dict[str, Sizes] = {}
    notes: list[str] = []
    for spec in inputs:
        within = dict(given[spec.name])
        if any(limit.choices for limit in within.values()):
            found[spec.name] = _enumerate_shapes(spec, within)
            continue
        guessed = []
        batch = _LARGEST_TABLE if len(spec.shape) == 2 and spec.dtype.startswith("float") else _LARGEST_BATCH
        for axis, dim in enumerate(spec.shape):
            if not isinstance(dim, int) and axis not in within:
                within[axis] = Limit(1, batch if batches.get(spec.name) == axis else _LARGEST)
                guessed.append(axis)
        default = tuple(
            dim if isinstance(dim, int) else usual[spec.name][axis] if axis in guessed else within[axis].least
            for axis, dim in enumerate(spec.shape)
        )
        bounds = tuple(
            (within[axis].least, within[axis].most) if axis in within else (size, size)
            for axis, size in enumerate(default)
        )
        found[spec.name] = Sizes(default, bounds if within else ())
        if guessed:
            written = ",".join(str(least) if least == most else f"{least}..{most}" for least, most in bounds)
            advice = f"give others with {quote_option('--shape', f'{spec.name}={written}')}"
            notes.append(f"input {spec.name!r} takes {written}, default bounds; {advice}")
    enumerated = [name for name, sizes in found.items() if sizes.choices]
    if len(enumerated) > 1 and not several_enumerated:
        raise UsageError(
            f"inputs {enumerated[0]!r} and {enumerated[1]!r} both have choices of sizes",
            why="before iOS18, Core ML supports them at one input only",
            fix="give --minimum-target iOS18, or bounds (1..8) instead",
        )
    return found, tuple(notes)


def _enumerate_shapes(spec: TensorSpec, within: Mapping[int, Limit]) -> Sizes:
    count = max(len(limit.choices) for limit in within.values())
    for axis, dim in enumerate(spec.shape):
        if not isinstance(dim, int) and not (axis in within and within[axis].choices):
            raise UsageError(
                f"input {spec.name!r} has choices for some dimensions, and dimension {axis + 1} is open without any",
                why="Core ML enumerates whole shapes",
                fix=f"give it a size, or {count} choices, too",
            )
    choices = tuple(
        tuple(
            dim if isinstance(dim, int) else within[axis].choices[turn] for axis, dim in enumerate(spec.shape)
        )
        for turn in range(count)
    )
    return Sizes(choices[0], choices=tuple(dict.fromkeys(choices)))

"""A package's inputs, outputs and intermediate values: what the source called them and what the program does."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.core.errors import InputError, UsageError
from onnxport.formats.manifest import Manifest, Port, Tap, note_key, pixels_key
from onnxport.formats.mlpackage.program import Function, Package


@dataclass(frozen=True)
class Ends:
    """By our manifest, or by the program itself where a package has none of ours.

    Attributes:
        taps: of the artefact's manifest; empty in a foreign package.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    taps: dict[str, Tap] = field(default_factory=dict)


def chosen(package: Package, path: Path, wanted: str) -> str:
    """The name of the function that is to answer: the package's default one unless the user wants another.

    Raises:
        UsageError: the package has none of the name that the user gives.
        InputError: it has none of the name that it gives itself.
    """
    name = wanted or package.default
    if name in package.functions:
        return name
    what, has = f"{path} has no function {name!r}", f"it has {', '.join(sorted(package.functions)) or 'none'}"
    if wanted:
        raise UsageError(what, why=has)
    raise InputError(what, why=has, fix="choose one with --candidate-runtime function=NAME")


def ends(package: Package, path: Path, name: str) -> Ends:
    """The ends of the package's function `name`.

    Raises:
        InputError: a note of ours that is damaged.
    """
    function = package.functions[name]
    note = package.description.metadata.userDefined.get(note_key(name))
    if note:
        try:
            manifest = Manifest.from_json(note)
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, "the note of its converter cannot be read") from error
        _check_keys(manifest, function, path)
        return Ends(manifest.inputs, manifest.outputs, dict(manifest.taps))
    declared = dict(function.inputs)
    declared |= {name: type_ for each in function.block.operations for name, type_ in each.outputs}
    return Ends(
        tuple(
            Port(name, name, type_.dtype, type_.shape or ())
            for name, type_ in function.inputs
            if type_.dtype != "state"
        ),
        tuple(
            Port(name, name, declared[name].dtype, declared[name].shape or ())
            for name in function.block.outputs
        ),
    )


def fed_types(function: Function) -> dict[str, str]:
    """The dtype of each input, of a state what it holds."""
    return {
        name: type_.dtype if type_.inner is None else type_.inner.dtype for name, type_ in function.inputs
    }


def held_states(function: Function) -> frozenset[str]:
    """The inputs that are states. One of ours is given and read like an input and an output, as in the source."""
    return frozenset(name for name, type_ in function.inputs if type_.dtype == "state")


def _check_keys(manifest: Manifest, function: Function, path: Path) -> None:
    """Refuses a note of what the program does not have."""
    taken = {name for name, _ in function.inputs}
    states = {name for name, type_ in function.inputs if type_.dtype == "state"}
    for ports, known in ((manifest.inputs, taken), (manifest.outputs, states.union(function.block.outputs))):
        for port in ports:
            if port.key not in known:
                raise _damaged(
                    path, f"the note of its converter names {port.key!r}, which the program does not"
                )


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged", why=why, fix="copy, download or convert it again")


def entering(array: Array, dtype: str, port: Port) -> Array:
    """A feed as the program takes it: integers in 32 bits, a scalar with one axis."""
    wanted = np.dtype(dtype)
    if wanted.kind in "iu" and array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise UsageError(
                f"input {port.name!r} has values from {array.min()} to {array.max()}",
                why=f"Core ML holds it as {wanted.name}",
                fix=f"keep it within {limits.min} to {limits.max}",
            )
    with np.errstate(over="ignore"):
        entered = array.astype(wanted, order="C")
    if wanted.kind == "f" and array.dtype.kind == "f" and (np.isinf(entered) & np.isfinite(array)).any():
        raise UsageError(
            f"input {port.name!r} has values beyond {np.finfo(wanted).max:.1e}",
            why=f"Core ML holds it as {wanted.name}",
            fix="scale it down",
        )
    return entered.reshape(1) if array.ndim == 0 else entered


def pixels(package: Package, path: Path, name: str) -> dict[str, tuple[Array, Array]]:
    """Key of each input of ours that apps give as a picture, to scale and bias as they broadcast.

    Raises:
        InputError: the note that says so is damaged.
    """
    place = pixels_key(name)
    note = package.description.metadata.userDefined.get(place)
    try:
        images = dict(json.loads(note) if note else {})
        found = {key: (_by_channel(each["scale"]), _by_channel(each["bias"])) for key, each in images.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"its note {place} cannot be read") from error
    if any(0 in scale for scale, _ in found.values()):
        raise _damaged(path, f"its note {place} has a scale of 0")
    return found


def _by_channel(numbers: list[float]) -> Array:
    return np.asarray(numbers, np.float64).reshape(-1, 1, 1)


def to_pixels(array: Array, scale: Array, bias: Array) -> Array:
    """The pixels of which a package makes what the source takes."""
    return np.asarray((array.astype(np.float64) - bias) / scale).astype(np.float32)


def leaving(value: Any, port: Port) -> Array:
    """An answer in the source's dtype and rank."""
    if isinstance(value, dict):  # a classifier's: the scores in the order of the labels
        return np.asarray(list(value.values())).reshape([dim or -1 for dim in port.shape]).astype(port.dtype)
    array = np.asarray(value)
    if not port.shape and array.shape == (1,):
        array = array.reshape(())
    return array.astype(port.dtype, copy=False)

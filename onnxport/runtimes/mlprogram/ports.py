"""The inputs, outputs and intermediate values of a package: names and types in the source and in the program."""

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
from onnxport.formats.numbered_texts import to_texts


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs by our manifest, or by the program itself in a foreign package."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    # Intermediate values in the manifest; empty in a foreign package.
    taps: dict[str, Tap] = field(default_factory=dict)


def function_name(package: Package, path: Path, wanted: str) -> str:
    """Return the name of the function to run: the user's (UsageError), or the package's default (InputError)."""
    name = wanted or package.default
    if name in package.functions:
        return name
    fault, why = (
        f"{path} has no function {name!r}",
        f"it has {', '.join(sorted(package.functions)) or 'none'}",
    )
    if wanted:
        raise UsageError(fault, why=why)
    raise InputError(fault, why=why, fix="choose one with --candidate-runtime function=NAME")


def signature(package: Package, path: Path, name: str) -> Signature:
    """Return the signature of the package's function `name`; InputError if our note in the package is damaged."""
    function = package.functions[name]
    note = package.description.metadata.userDefined.get(note_key(name))
    if note:
        try:
            manifest = Manifest.from_json(note)
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, "the note of its converter cannot be read") from error
        _check_keys(manifest, function, path)
        return Signature(manifest.inputs, manifest.outputs, dict(manifest.taps))
    declared = dict(function.inputs)
    declared |= {name: type_ for each in function.block.operations for name, type_ in each.outputs}
    return Signature(
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


def input_types(function: Function) -> dict[str, str]:
    """Return the dtype of each input; of a state, that of its content."""
    return {
        name: type_.dtype if type_.inner is None else type_.inner.dtype for name, type_ in function.inputs
    }


def state_names(function: Function) -> frozenset[str]:
    """Return the inputs that are states; a state of ours is fed and read like the source's input and output."""
    return frozenset(name for name, type_ in function.inputs if type_.dtype == "state")


def _check_keys(manifest: Manifest, function: Function, path: Path) -> None:
    """Raise InputError where the manifest names values that the program does not have."""
    inputs = {name for name, _ in function.inputs}
    outputs = state_names(function).union(function.block.outputs)
    for ports, known in ((manifest.inputs, inputs), (manifest.outputs, outputs)):
        for port in ports:
            if port.key not in known:
                raise _damaged(path, f"the note of its converter names {port.key!r}, the program does not")


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is damaged", why=why, fix="copy, download or convert it again")


def to_program(array: Array, dtype: str, port: Port) -> Array:
    """Convert a feed for the program: integers of 32 bits, a scalar with one axis."""
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
        cast = array.astype(wanted, order="C")
    if wanted.kind == "f" and array.dtype.kind == "f" and (np.isinf(cast) & np.isfinite(array)).any():
        raise UsageError(
            f"input {port.name!r} has values beyond {np.finfo(wanted).max:.1e}",
            why=f"Core ML holds it as {wanted.name}",
            fix="scale it down",
        )
    return cast.reshape(1) if array.ndim == 0 else cast


def image_inputs(package: Package, path: Path, name: str) -> dict[str, tuple[Array, Array]]:
    """Return scale and bias, ready to broadcast, of each image input by its key; InputError if our note is damaged."""
    place = pixels_key(name)
    note = package.description.metadata.userDefined.get(place)
    try:
        images = dict(json.loads(note) if note else {})
        found = {key: (_channels(each["scale"]), _channels(each["bias"])) for key, each in images.items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"its note {place} cannot be read") from error
    if any(0 in scale for scale, _ in found.values()):
        raise _damaged(path, f"its note {place} has a scale of 0")
    return found


def _channels(numbers: list[float]) -> Array:
    return np.asarray(numbers, np.float64).reshape(-1, 1, 1)


def to_pixels(array: Array, scale: Array, bias: Array) -> Array:
    """Invert a package's scale and bias: pixels = (array - bias) / scale."""
    return np.asarray((array.astype(np.float64) - bias) / scale).astype(np.float32)


def from_program(value: Any, port: Port) -> Array:
    """Convert an output to the source's dtype and rank."""
    if isinstance(value, dict):  # a classifier's scores, in the order of the labels
        return np.asarray(list(value.values())).reshape([dim or -1 for dim in port.shape]).astype(port.dtype)
    array = np.asarray(value)
    if not port.shape and array.shape == (1,):
        array = array.reshape(())
    if port.texts:
        return to_texts(array, port.texts)
    return array.astype(port.dtype, copy=False)

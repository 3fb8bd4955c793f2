"""The tensors in forward's result, and their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from onnxport.core.arrays import Array
from onnxport.core.errors import CannotConvertError, UsageError
from onnxport.runtimes.base import RunError

Path = tuple[str | int, ...]


def leaves(answer: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Return the leaves of nested dictionaries, sequences and dataclasses, in torch.export's order."""
    parts = _parts(answer)
    if parts is None:
        yield path, answer
        return
    for key, part in parts:
        yield from leaves(part, (*path, key))


def _parts(answer: Any) -> Sequence[tuple[str | int, Any]] | None:
    if isinstance(answer, Mapping):
        return [(str(key), part) for key, part in answer.items()]
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        fields = [(field.name, getattr(answer, field.name)) for field in dataclasses.fields(answer)]
        return [(name, part) for name, part in fields if part is not None]  # as torch.export has them
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        return list(zip(answer._fields, answer, strict=True))
    if isinstance(answer, (list, tuple)):
        return list(enumerate(answer))
    return None


def register_dataclasses(answer: Any) -> None:
    """Let torch.export unpack the dataclasses in `answer`, which it refuses otherwise."""
    if dataclasses.is_dataclass(answer) and not isinstance(answer, (type, Mapping)):
        kind = type(answer)
        if kind not in torch.utils._pytree.SUPPORTED_NODES:
            torch.export.register_dataclass(
                kind, serialized_type_name=f"{kind.__module__}.{kind.__qualname__}"
            )
    for _, part in _parts(answer) or ():
        register_dataclasses(part)


def name_outputs(paths: Sequence[Path], given: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """Return a name for each output: the user's (UsageError: too many, too few, or doubled), else its keys or index."""
    names = list(given) or [_name(path) for path in paths]
    if len(names) != len(paths):
        found = ", ".join(map(_name, paths))
        raise UsageError(
            f"{len(names)} output names are given for {len(paths)} outputs", fix=f"the outputs are {found}"
        )
    taken = set(inputs)
    for number, name in enumerate(names):
        if name in taken and given:
            raise UsageError(
                f"the name {name!r} is given to two values", fix="give every input and output its own"
            )
        while names[number] in taken:  # a forward that gives back what it was given
            names[number] += "_out"
        taken.add(names[number])
    return names


def _name(path: Path) -> str:
    if not path:
        return "output"
    name = "_".join(map(str, path))
    return name if isinstance(path[0], str) else f"output_{name}"


def to_array(leaf: Any) -> Array:
    """Return a tensor, or a number that torch.export keeps open, as the ONNX model's array."""
    if not isinstance(leaf, torch.Tensor):
        return np.asarray(leaf, np.float32 if isinstance(leaf, float) else None)
    tensor = leaf.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.resolve_conj().numpy())


def to_tensor(array: Array) -> torch.Tensor:
    array = np.ascontiguousarray(array).reshape(array.shape)  # which makes a vector of a scalar
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def pick_outputs(answer: Any, places: Mapping[str, int], count: int) -> dict[str, Array]:
    """Return the outputs among the leaves of `answer`; RunError if there are not `count` leaves."""
    found = [leaf for _, leaf in leaves(answer)]
    if len(found) != count:
        raise RunError(f"forward gives {len(found)} values", why=f"on the example it gave {count}")
    return {name: to_array(found[place]) for name, place in places.items()}


def refuse_complex(dtype: torch.dtype, name: str) -> None:
    if dtype.is_complex:
        raise CannotConvertError(
            f"{name!r} is complex, and no ONNX model takes or gives complex tensors",
            fix="use torch.view_as_real and torch.view_as_complex at the border",
        )

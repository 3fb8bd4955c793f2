"""tract (Sonos): reads ONNX itself, optimizes for given sizes, runs on one thread."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tract

from onnxport.core.arrays import Array, Feeds
from onnxport.runtimes.engines.base import EngineRuntime, Refusal, Session, Work

# NumPy's dtype names -> tract's, as in a fact.
_TYPES = {
    "bool": "bool",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    **{f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_STEP = re.compile(r"^\d+: ")
_NOISE = ("Caused by:", "Infering facts")


class TractRuntime(EngineRuntime):
    """A model in tract, optimized for the sizes that it meets.

    tract takes sizes as facts of the inputs before shape inference, or as values of the file's symbols afterwards. It
    refuses the first for symbolic intermediate shapes, the second where it cannot prove expressions equal. We try both.
    """

    title = "tract"
    distribution = "tract"
    types = frozenset(_TYPES)

    def _load(self, work: Work) -> Session:
        assert work.sizes is not None
        try:
            return _load(work, _set_facts)
        except tract.TractError as error:
            if all(spec.is_static for spec in work.inputs):
                raise Refusal(_cause(error)) from error
            with contextlib.suppress(tract.TractError):
                return _load(work, _set_symbols)
            raise Refusal(_cause(error)) from error


def _load(work: Work, set_sizes: Callable[[Any, Work], Any]) -> _Session:
    read = tract.onnx().load(work.file)
    names = [read.input_name(place) for place in range(read.input_count())]
    if unknown := set(names) - {spec.name for spec in work.inputs}:
        raise Refusal(f"it takes {min(unknown)!r} for an input, which the model does not declare")
    return _Session(names, set_sizes(read, work).into_runnable())


def _set_facts(read: Any, work: Work) -> Any:
    """Return the typed model, with the inputs' sizes set before shape inference."""
    sizes, dtypes = work.sizes or {}, {spec.name: spec.dtype for spec in work.inputs}
    for place in range(read.input_count()):
        name = read.input_name(place)
        read.set_input_fact(place, ",".join((*map(str, sizes[name]), _TYPES[dtypes[name]])))
    return read.into_model()


def _set_symbols(read: Any, work: Work) -> Any:
    """Return the typed model, with its symbols set after shape inference."""
    sizes = work.sizes or {}
    names = [read.input_name(place) for place in range(read.input_count())]
    model = read.into_model()
    values: dict[str, int] = {}
    for name, fact in zip(names, model.input_facts(), strict=True):
        for dim, size in zip(fact.dims(), sizes[name], strict=True):
            if not dim.dump().isdigit():
                values[dim.dump()] = size
    model.transform(tract.SetSymbols(values))
    return model


def _cause(error: Exception) -> str:
    """Return tract's message, from the node down to the reason, without the backtrace."""
    text, _, _ = str(error).partition("Stack backtrace:")
    steps = [_STEP.sub("", line.strip()) for line in text.splitlines()]
    return ": ".join(step for step in steps if step and step not in _NOISE)


class _Session:
    def __init__(self, names: Sequence[str], runnable: Any) -> None:
        self._names, self._runnable = names, runnable

    def run(self, feeds: Feeds) -> list[Array]:
        try:
            found = self._runnable.run([feeds[name] for name in self._names])
            return [_array(tensor) for tensor in found]
        except tract.TractError as error:
            raise Refusal(_cause(error)) from error


def _array(tensor: Any) -> Array:
    """Return a tensor's content; `to_numpy` fails for sizes (int64 in ONNX) and for tensors without elements."""
    try:
        dtype, shape, _ = tensor._parts()
    except tract.TractError:
        tensor = tensor.convert_to(tract.DatumType.I64)
        dtype, shape, _ = tensor._parts()
    if not math.prod(shape):
        return np.zeros(shape, next(name for name, short in _TYPES.items() if short == dtype.name.lower()))
    return np.asarray(tensor.to_numpy())

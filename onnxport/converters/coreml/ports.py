"""A program's inputs and outputs: the types and ranks that Core ML supports, and substitutes for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as onnx

from onnxport.converters.app_metadata import ImageInput
from onnxport.converters.coreml.builder import MilBuilder, MilType, NoMil, wrap
from onnxport.converters.coreml.library import (
    Function,
    Placeholder,
    StateTensorPlaceholder,
    Var,
    get_new_symbol,
    mb,
    types,
)
from onnxport.converters.coreml.names import INNER, Keys
from onnxport.converters.coreml.package.images import convert_pixels
from onnxport.converters.coreml.values import LARGEST_RANK, Value
from onnxport.converters.lowering import known_shape
from onnxport.core.errors import Refusal
from onnxport.formats.manifest import Port
from onnxport.formats.model import dims_of, dtype_name
from onnxport.formats.numbered_texts import read_texts

# ONNX element type -> element type of Core ML's multi-array; the program casts to the type that it computes in.
# float16 needs iOS16.
_PORTS = {
    **dict.fromkeys("bool int8 uint8 int16 uint16 int32 uint32 int64 uint64".split(), types.int32),
    **dict.fromkeys("float32 float64 bfloat16".split(), types.fp32),
    "float16": types.fp16,
}
_MIL: dict[Any, MilType] = {types.int32: "int32", types.fp32: "fp32", types.fp16: "fp16", types.bool: "bool"}


class Ports:
    """The inputs and outputs of `graph`.

    Args:
        states: input name to output name of Core ML's states.
        images: input name to the conversion of its pixels.

    Attributes:
        refusals: ports that Core ML does not support.
        placeholders: key to input of the function.
        described: the inputs for the manifest.
    """

    def __init__(
        self,
        graph: onnx.Graph,
        mil: MilBuilder,
        keys: Keys,
        states: Mapping[str, str],
        images: Mapping[str, ImageInput],
    ) -> None:
        self._graph, self._mil, self._states, self._images = graph, mil, states, images
        self._held: dict[str, Var] = {}  # output name to the state that stores it
        inputs = [value for value in graph.inputs if value.name not in graph.initializers]
        self.refusals = [
            Refusal(kind, value.name or "", why)
            for kind, values in (("input", inputs), ("output", graph.outputs))
            for value in values
            if (why := _refusal(value, mil))
        ]
        self._inputs = [value for value in inputs if _mil_type(value, mil) is not None]
        self._names = [keys.key(value.name or "") for value in self._inputs]
        self._out_names = [keys.key(value.name or "") for value in graph.outputs]
        self._symbols: dict[object, Any] = {}
        self.placeholders = {
            key: self._placeholder(value, key)
            for key, value in zip(self._names, self._inputs, strict=True)
            if len(dims_of(value)) <= LARGEST_RANK
        }
        self.described = tuple(
            Port(value.name or "", key, dtype_name(value.dtype), known_shape(value))
            for value, key in zip(self._inputs, self._names, strict=True)
        )

    def inputs(self, function: Function) -> dict[onnx.Value, Value]:
        """Return each input's value in the open function, cast and reshaped to ONNX's type."""
        found = {}
        for value, key in zip(self._inputs, self._names, strict=True):
            if key not in function.inputs:
                continue
            var = function.inputs[key]
            if value.name in self._states:
                self._held[self._states[value.name or ""]] = var
                var = mb.read_state(input=var, name=self._mil.inner_name("read_state"))
            found[value] = self._convert_input(value, var)
        return found

    def outputs(self, results: Sequence[Value | None]) -> tuple[list[Var], tuple[Port, ...]]:
        """Return the function's results, each a variable of its own in a type that Core ML returns."""
        made: list[Var] = []
        ports = []
        for value, result, key in zip(self._graph.outputs, results, self._out_names, strict=True):
            assert result is not None, "refused nodes are reported before"
            state = self._held.get(value.name or "")
            place = key if state is None else str(state.name)
            texts = read_texts(value)
            dtype = "string" if texts else dtype_name(value.dtype)
            ports.append(Port(value.name or "", place, dtype, result.shape, texts=texts))
            try:
                var = self._mil.var(result, _MIL[_mil_type(value, self._mil)] if state is None else "fp16")
            except NoMil as error:  # a constant that the type does not hold
                self.refusals.append(Refusal("output", value.name or "", str(error)))
                continue
            if result.rank == 0:
                var = mb.expand_dims(x=var, axes=[0], name=self._mil.inner_name("expand_dims"))
            if state is not None:
                mb.coreml_update_state(state=state, value=var, name=self._mil.inner_name("update_state"))
                continue
            # An output that is also an input, a constant or another output makes an invalid package.
            is_own = var.op is not None and var.op.op_type != "const" and len(var.op.outputs) == 1
            if not is_own or INNER not in var.name:
                var = mb.identity(x=var, name=key)
            var.name = var.op.name = key
            made.append(var)
        return made, tuple(ports)

    def _convert_input(self, value: onnx.Value, var: Var) -> Value:
        assert value.dtype is not None
        dtype = np.dtype(value.dtype.numpy())
        dims = dims_of(value)
        if not dims:
            var = mb.squeeze(x=var, axes=[0], name=self._mil.inner_name("squeeze"))
        if dtype.kind == "b":
            var = mb.cast(x=var, dtype="bool", name=self._mil.inner_name("cast"))
        if (image := self._images.get(value.name or "")) is not None:
            var = convert_pixels(var, image, var.name, self._mil.compute == "fp16")
        return wrap(var, dtype)

    def _placeholder(self, value: onnx.Value, key: str) -> Placeholder:
        shape = tuple(dim if isinstance(dim, int) else self._symbol(dim) for dim in dims_of(value))
        if value.name in self._states:
            return StateTensorPlaceholder(shape or (1,), types.fp16, name=key)
        if value.name in self._images:
            return Placeholder(sym_shape=shape, dtype=types.fp32, name=key)
        return Placeholder(sym_shape=shape or (1,), dtype=_mil_type(value, self._mil), name=key)

    def _symbol(self, dim: object) -> Any:
        """Return one symbol per name: open dimensions of one name have one size."""
        return get_new_symbol() if dim is None else self._symbols.setdefault(dim, get_new_symbol())

    @staticmethod
    def stand_in(value: onnx.Value, mil: MilBuilder, name: str) -> Value | None:
        """Make a value of the type and shape of `value`, for a program that is discarded in the end."""
        type_ = _mil_type(value, mil)
        dims = dims_of(value)
        if type_ is None or len(dims) > LARGEST_RANK or 0 in dims:
            return None
        assert value.dtype is not None
        shape = tuple(dim if isinstance(dim, int) else get_new_symbol() for dim in dims)
        var = Placeholder(sym_shape=shape, dtype=type_, name=name, allow_rank0_input=True).outputs[0]
        dtype = np.dtype(value.dtype.numpy())
        if dtype.kind != "b":
            return wrap(var, dtype)
        return wrap(Placeholder(sym_shape=shape, dtype=types.bool, allow_rank0_input=True).outputs[0], dtype)


def _mil_type(value: onnx.Value, mil: MilBuilder) -> Any:
    """Return MIL's type of a port; None if it has none."""
    if isinstance(value.type, onnx.SequenceType | onnx.OptionalType) or value.dtype is None:
        return None
    found = _PORTS.get(dtype_name(value.dtype))
    return types.fp32 if found is types.fp16 and not mil.at_least("iOS16") else found


def _refusal(value: onnx.Value, mil: MilBuilder) -> str:
    """Return why Core ML does not support a port; empty if it does."""
    if isinstance(value.type, onnx.SequenceType | onnx.OptionalType):
        return "is a sequence or an optional value, and Core ML's programs have tensors only"
    if value.dtype is not None and _mil_type(value, mil) is None:
        return f"is of type {dtype_name(value.dtype)}, which Core ML's arrays do not support"
    dims = () if value.shape is None else dims_of(value)
    if 0 in dims:
        return "has a dimension of size 0, and Core ML has no empty tensors"
    if len(dims) > LARGEST_RANK:
        return f"has {len(dims)} dimensions, and Core ML's arrays have {LARGEST_RANK} at most"
    return ""

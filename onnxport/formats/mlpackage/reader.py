"""Read an `.mlpackage` into the objects of program.py."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from onnxport.core import limits
from onnxport.core.arrays import Array
from onnxport.core.errors import InputError
from onnxport.core.regular_file import read_regular
from onnxport.formats.growth import Growth
from onnxport.formats.mlpackage import program
from onnxport.formats.mlpackage.files import PACKED, find_file, messages, read_blob, read_message, unpack
from onnxport.formats.mlpackage.program import Block, Constant, Function, Operation, Package, Type

# MIL's data types -> NumPy's names; arrays of fewer than 8 bits have one number a byte.
_NAMES = {
    "FLOAT16": "float16",
    "FLOAT32": "float32",
    "FLOAT64": "float64",
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2",
    "BOOL": "bool",
    "STRING": "str",
    **{f"{sign}INT{bits}": f"{sign}int{bits}".lower() for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "INT4": "int4",
    **{f"UINT{bits}": f"uint{bits}" for bits in (1, 2, 3, 4, 6)},
}
_MANIFEST = "Manifest.json"
_LIST = "list"
_LARGEST_MANIFEST = 1_000_000  # bytes; those of coremltools have less than a thousand
# Bytes that an operator counts as; in a file it has more, unless it was made to fill the memory.
_OPERATION = 64


def read_package(folder: Path) -> Package:
    """Read the package at `folder`; ImportError without coremltools.

    Raises InputError if it is no package, damaged, or has another kind of model than an ML program.
    """
    import json

    try:
        manifest = json.loads(read_regular(folder / _MANIFEST, _LARGEST_MANIFEST))
        root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} is not a Core ML package", why=f"it has no {Path(error.filename).name}"
        ) from error
    except OSError as error:
        raise InputError(f"{folder} cannot be read", why=error.strerror or str(error)) from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _damaged(folder, f"its {_MANIFEST} does not say where the model is") from error
    file, content = _read_model(folder, root)
    message = messages("Model").Model
    try:
        spec = message.FromString(content)
    except Exception as error:  # protobuf's DecodeError, whichever implementation raises it
        raise _damaged(folder, f"{file.name} is truncated or no model") from error
    kind = spec.WhichOneof("Type")
    if kind is None:
        raise _damaged(folder, f"{file.name} holds no model")
    if kind != "mlProgram":
        raise InputError(
            f"{folder} holds a {kind}, not an ML program",
            fix="only programs (iOS15 and newer) can be evaluated; convert the model again",
        )
    return Package(_functions(spec, folder, file.parent), spec.description, spec)


def _read_model(folder: Path, name: Any) -> tuple[Path, bytes]:
    """Return the path and the content of the model's file."""
    try:
        file = find_file(folder / "Data", name if isinstance(name, str) else "")
        return file, read_message(file)
    except FileNotFoundError as error:
        raise InputError(f"{folder} is not a Core ML package", why=f"it has no {Path(name).name}") from error
    except OSError as error:
        raise InputError(f"{folder} cannot be read", why=error.strerror or str(error)) from error
    except ValueError as error:
        raise _damaged(folder, str(error)) from error


def _functions(spec: Any, folder: Path, root: Path) -> dict[str, Function]:
    try:
        size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
        weights = _Weights(root, Growth(size))
        functions = {
            name: _function(each, weights) for name, each in sorted(spec.mlProgram.functions.items())
        }
        if not functions:
            raise ValueError("its program has no function")
        for function in functions.values():
            program.check_function(function)
        return functions
    except FileNotFoundError as error:
        raise _damaged(folder, f"{Path(error.filename).name}, which holds its weights, is missing") from error
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, struct.error, OSError) as error:
        raise _damaged(folder, str(error)) from error


def _damaged(folder: Path, why: str) -> InputError:
    return InputError(f"{folder} is damaged", why=why, fix="copy, download or convert it again")


def _function(spec: Any, weights: _Weights) -> Function:
    if spec.opset not in spec.block_specializations:
        raise ValueError(f"a function names the opset {spec.opset!r} and has no block for it")
    block = spec.block_specializations[spec.opset]
    inputs = tuple((each.name, _type(each.type)) for each in spec.inputs)
    return Function(inputs, spec.opset, _block(block, weights))


@dataclass(frozen=True)
class _Weights:
    """The weight files of a package; constants may share bytes of them, and packed ones are copied."""

    folder: Path
    growth: Growth

    def read(self, place: Any, type_: Type) -> Array:
        file = find_file(self.folder, place.fileName.removeprefix("@model_path/"))
        found = read_blob(file, place.offset, type_.dtype, _static(type_))
        if type_.dtype in PACKED:
            self.growth.take(found.nbytes)
        return found


def _block(spec: Any, weights: _Weights) -> Block:
    return Block(
        tuple(each.name for each in spec.inputs),
        tuple(_type(each.type) for each in spec.inputs),
        tuple(spec.outputs),
        tuple(_operation(each, weights) for each in spec.operations),
    )


def _operation(spec: Any, weights: _Weights) -> Operation:
    weights.growth.take(_OPERATION)
    attributes = {name: _constant(value, weights) for name, value in spec.attributes.items()}
    name = attributes.pop("name", Constant(""))
    return Operation(
        spec.type,
        str(name.value),
        {name: _bindings(argument, weights) for name, argument in spec.inputs.items()},
        tuple((each.name, _type(each.type)) for each in spec.outputs),
        attributes,
        tuple(_block(each, weights) for each in spec.blocks),
    )


def _bindings(argument: Any, weights: _Weights) -> tuple[str | Constant, ...]:
    return tuple(
        each.name if each.WhichOneof("binding") == "name" else _constant(each.value, weights)
        for each in argument.arguments
    )


def _type(spec: Any) -> Type:
    kind = spec.WhichOneof("type")
    if kind == "tensorType":
        dims = tuple(
            int(dim.constant.size) if dim.WhichOneof("dimension") == "constant" else None
            for dim in spec.tensorType.dimensions
        )
        shape = None if spec.tensorType.rank < 0 else dims
        return Type(_NAMES[messages("MIL").DataType.Name(spec.tensorType.dataType)], shape)
    if kind == "listType":
        return Type(_LIST, (), _type(spec.listType.type))
    if kind == "stateType":
        return Type("state", (), _type(spec.stateType.wrappedType))
    if kind == "dictionaryType":
        return Type("dictionary")
    raise ValueError(f"a value of type {kind}")


def _constant(spec: Any, weights: _Weights) -> Constant:
    if spec.WhichOneof("value") == "blobFileValue":
        type_ = _type(spec.type)
        return Constant(weights.read(spec.blobFileValue, type_), type_.dtype)
    value = spec.immediateValue
    kind = value.WhichOneof("value")
    if kind == "tensor":
        type_ = _type(spec.type)
        return Constant(_tensor(value.tensor, type_), type_.dtype)
    if kind in ("list", "tuple"):
        return Constant(tuple(_constant(each, weights).value for each in getattr(value, kind).values))
    raise ValueError(f"a constant of kind {kind}")


def _tensor(spec: Any, type_: Type) -> Any:
    """Return an array; for strings a Python string, or an array of objects."""
    kind = spec.WhichOneof("value")
    shape = _static(type_)
    if kind == "strings":
        strings = list(spec.strings.values)
        return strings[0] if not shape else np.array(strings, dtype=object).reshape(shape)
    if kind == "bytes":  # types without a field in the message, as raw data
        data = np.frombuffer(spec.bytes.values, np.uint8)
        if type_.dtype in ("int4", "uint1", "uint2", "uint3", "uint4", "uint6"):
            return unpack(data, type_.dtype, math.prod(shape)).reshape(shape)
        return data.view(np.dtype(getattr(ml_dtypes, type_.dtype, type_.dtype))).reshape(shape)
    values = getattr(spec, kind).values if kind else []
    dtype = np.dtype(getattr(ml_dtypes, type_.dtype, type_.dtype))
    numbers = np.array(values, dtype=dtype)
    size = math.prod(shape)
    if numbers.size != size and numbers.size <= 1:  # one for all, or omitted zeros
        if size > limits.limit(
            "fill"
        ):  # in the memory of one number; converters write larger ones as weights
            raise ValueError(f"a constant of the shape {shape} has one number; {limits.advice('fill', size)}")
        numbers = np.broadcast_to(numbers if numbers.size else np.zeros(1, dtype), (size,))
    if numbers.size != size:
        raise ValueError(f"a constant of {numbers.size} numbers has the shape {shape}")
    return numbers.reshape(shape)


def _static(type_: Type) -> tuple[int, ...]:
    return tuple(dim if dim is not None else 1 for dim in type_.shape or ())

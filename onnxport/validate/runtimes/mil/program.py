"""A package read into plain objects: functions, blocks, operators and constants, without protobuf behind them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from onnxport.errors import InputError
from onnxport.validate.runtimes.mil.schema import messages
from onnxport.validate.runtimes.mil.weights import read_blob, unpacked

Array = np.ndarray[Any, np.dtype[Any]]

# MIL's data types by NumPy's names; those of fewer than 8 bits are held in whole bytes.
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


@dataclass(frozen=True)
class Type:
    """What an operator declares of a result.

    Attributes:
        dtype: NumPy's name, "uint4" and the like, "str"; "list", "state" or "dictionary" for what is no tensor.
        shape: sizes, None where a dimension is open; None for a rank that is not declared.
        inner: of a list's elements, or what a state holds.
    """

    dtype: str
    shape: tuple[int | None, ...] | None = ()
    inner: Type | None = None


@dataclass(frozen=True)
class Operation:
    """One operator.

    Attributes:
        inputs: parameter to the names of the values bound to it, or to a constant that stands there itself.
        attributes: "name", "val" of a const, and constants of the constexpr operators before iOS18.
    """

    type: str
    name: str
    inputs: Mapping[str, tuple[str | Constant, ...]]
    outputs: tuple[tuple[str, Type], ...]
    attributes: Mapping[str, Constant] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A value in the file: an array, a Python string, or a tuple of them for a list.

    Attributes:
        dtype: as in Type, where it is a tensor: what is held in bytes may stand for fewer bits.
    """

    value: Any
    dtype: str = ""


@dataclass(frozen=True)
class Block:
    """Operators in order, the names of what they are given, of what types, and the names of what they return."""

    inputs: tuple[str, ...]
    types: tuple[Type, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Function:
    """An entry point: its typed inputs, and its block for the opset it is written in ("CoreML7")."""

    inputs: tuple[tuple[str, Type], ...]
    opset: str
    block: Block


@dataclass(frozen=True)
class Package:
    """A package's model: its functions, and the message that describes inputs and outputs."""

    functions: Mapping[str, Function]
    description: Any
    spec: Any


def read_package(folder: Path) -> Package:
    """Reads the package at `folder`.

    Raises:
        InputError: no package, a damaged one, or one that holds another kind of model than an ML program.
        ImportError: coremltools is not installed.
    """
    import json

    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
        file = folder / "Data" / root
        spec = messages("Model").Model.FromString(file.read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} is no Core ML package", why=f"it has no {Path(error.filename).name}"
        ) from error
    except OSError as error:
        raise InputError(f"{folder} cannot be read", why=error.strerror or str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} is damaged", fix="copy, download or convert it again") from error
    except Exception as error:  # protobuf's DecodeError, whichever implementation raises it
        raise InputError(f"{folder} is damaged", fix="copy, download or convert it again") from error
    if spec.WhichOneof("Type") != "mlProgram":
        raise InputError(
            f"{folder} holds a {spec.WhichOneof('Type')}, not an ML program",
            fix="only programs (iOS15 and newer) can be evaluated; convert the model again",
        )
    try:
        functions = {
            name: _function(each, file.parent) for name, each in sorted(spec.mlProgram.functions.items())
        }
    except (ValueError, KeyError, IndexError, struct.error, OSError) as error:
        raise InputError(f"{folder} is damaged", why=str(error), fix="convert it again") from error
    return Package(functions, spec.description, spec)


def _function(spec: Any, folder: Path) -> Function:
    block = spec.block_specializations[spec.opset]
    inputs = tuple((each.name, _type(each.type)) for each in spec.inputs)
    return Function(inputs, spec.opset, _block(block, folder))


def _block(spec: Any, folder: Path) -> Block:
    return Block(
        tuple(each.name for each in spec.inputs),
        tuple(_type(each.type) for each in spec.inputs),
        tuple(spec.outputs),
        tuple(_operation(each, folder) for each in spec.operations),
    )


def _operation(spec: Any, folder: Path) -> Operation:
    attributes = {name: _constant(value, folder) for name, value in spec.attributes.items()}
    name = attributes.pop("name", Constant(""))
    return Operation(
        spec.type,
        str(name.value),
        {name: _bindings(argument, folder) for name, argument in spec.inputs.items()},
        tuple((each.name, _type(each.type)) for each in spec.outputs),
        attributes,
        tuple(_block(each, folder) for each in spec.blocks),
    )


def _bindings(argument: Any, folder: Path) -> tuple[str | Constant, ...]:
    return tuple(
        each.name if each.WhichOneof("binding") == "name" else _constant(each.value, folder)
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
    return Type(str(kind).removesuffix("Type"))


def _constant(spec: Any, folder: Path) -> Constant:
    if spec.WhichOneof("value") == "blobFileValue":
        file = folder / spec.blobFileValue.fileName.removeprefix("@model_path/")
        type_ = _type(spec.type)
        return Constant(read_blob(file, spec.blobFileValue.offset, type_.dtype, _static(type_)), type_.dtype)
    value = spec.immediateValue
    kind = value.WhichOneof("value")
    if kind == "tensor":
        type_ = _type(spec.type)
        return Constant(_tensor(value.tensor, type_), type_.dtype)
    if kind in ("list", "tuple"):
        return Constant(tuple(_constant(each, folder).value for each in getattr(value, kind).values))
    raise ValueError(f"a constant of kind {kind}")


def _tensor(spec: Any, type_: Type) -> Any:
    """An array; a Python string, or an array of them as objects."""
    kind = spec.WhichOneof("value")
    shape = _static(type_)
    if kind == "strings":
        strings = list(spec.strings.values)
        return strings[0] if not shape else np.array(strings, dtype=object).reshape(shape)
    if kind == "bytes":  # types that the message has no field for, in their own representation
        data = np.frombuffer(spec.bytes.values, np.uint8)
        if type_.dtype in ("int4", "uint1", "uint2", "uint3", "uint4", "uint6"):
            return unpacked(data, type_.dtype, int(np.prod(shape, dtype=np.int64))).reshape(shape)
        return data.view(np.dtype(getattr(ml_dtypes, type_.dtype, type_.dtype))).reshape(shape)
    values = getattr(spec, kind).values if kind else []
    dtype = np.dtype(getattr(ml_dtypes, type_.dtype, type_.dtype))
    numbers = np.array(values, dtype=dtype)
    size = int(np.prod(shape, dtype=np.int64))
    if numbers.size != size and numbers.size <= 1:  # a default that protobuf leaves out, or one for all
        numbers = np.full(size, numbers[0] if numbers.size else 0, dtype)
    return numbers.reshape(shape)


def _static(type_: Type) -> tuple[int, ...]:
    return tuple(dim if dim is not None else 1 for dim in type_.shape or ())

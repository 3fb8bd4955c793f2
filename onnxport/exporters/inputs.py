"""Input specs: `NAME=1,3,224,224:float32`, and the dimensions that stay open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from onnxport.core.errors import UsageError
from onnxport.core.named_values import parse_pairs
from onnxport.formats.artifact import TensorSpec

_FORM = "write NAME=1,3,224,224:float32"
_DYNAMIC_FORM = "write NAME=batch,_,height,width, with _ for a dimension that keeps its size"
DTYPES = (
    "float32 float64 float16 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 string bfloat16".split()
)

# The names of a dynamic input's dimensions, None for one that keeps its size.
DimNames = tuple[str | None, ...]


def parse_specs(given: str | Sequence[str] | Mapping[str, Any]) -> dict[str, TensorSpec]:
    """Parse `NAME=DIMS:DTYPE` texts (UsageError); the default dtype is float32, no dimension is a scalar."""
    pairs = parse_pairs(given, what="inputs", form=_FORM)
    return {
        name: spec if isinstance(spec, TensorSpec) else _spec(name, str(spec)) for name, spec in pairs.items()
    }


def _spec(name: str, text: str) -> TensorSpec:
    dims, _, dtype = text.partition(":")
    dtype = dtype.strip() or "float32"
    if dtype not in DTYPES:
        raise UsageError(f"{dtype!r} of input {name!r} is no dtype", fix=f"give one of {', '.join(DTYPES)}")
    sizes = [dim.strip() for dim in dims.split(",")] if dims.strip() else []
    for size in sizes:
        if not size.isdecimal() or not int(size):
            raise UsageError(
                f"{size!r} in the shape of input {name!r} is no size",
                why="the model is run on an example",
                fix=f"give every dimension a size, and --dynamic for those that are to stay open; {_FORM}",
            )
    return TensorSpec(name, dtype, tuple(int(size) for size in sizes))


def parse_dynamic(given: str | Sequence[str] | Mapping[str, Any]) -> dict[str, DimNames]:
    """Parse `NAME=batch,_,height,width` texts (UsageError)."""
    pairs = parse_pairs(given, what="dynamic dimensions", form=_DYNAMIC_FORM)
    read: dict[str, DimNames] = {}
    for name, dims in pairs.items():
        names = (
            [dim.strip() for dim in dims.split(",")]
            if isinstance(dims, str)
            else list(_split_list(name, dims))
        )
        if not names or not all(each is None or each for each in names):
            raise UsageError(f"{dims!r} names no dimensions of {name!r}", fix=_DYNAMIC_FORM)
        read[name] = tuple(None if each in (None, "_") else str(each) for each in names)
    return read


def _split_list(name: str, dims: object) -> Sequence[str | None]:
    if not isinstance(dims, Sequence):
        raise UsageError(f"{dims!r} names no dimensions of {name!r}", fix=_DYNAMIC_FORM)
    return dims


Specs = Annotated[dict[str, TensorSpec], BeforeValidator(parse_specs)]
Dynamic = Annotated[dict[str, DimNames], BeforeValidator(parse_dynamic)]

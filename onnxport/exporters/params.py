"""The options of `onnxport export`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from onnxport.core.errors import UsageError
from onnxport.core.named_values import Entries, parse_pairs
from onnxport.core.option_types import Names, Params, option
from onnxport.core.shell_words import quote_option
from onnxport.formats.artifact import TensorSpec
from onnxport.formats.input_paths import InputPath
from onnxport.optimizers.params import Opset

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
        raise UsageError(f"{dtype!r} is not a dtype (input {name!r})", fix=f"give one of {', '.join(DTYPES)}")
    sizes = [dim.strip() for dim in dims.split(",")] if dims.strip() else []
    for size in sizes:
        if not size.isdecimal() or not int(size):
            raise UsageError(
                f"{size!r} is not a size (input {name!r})",
                why="the model is run on an example",
                fix=f"give every dimension a size, and --dynamic for those that stay open; {_FORM}",
            )
    return TensorSpec(name, dtype, tuple(int(size) for size in sizes))


def parse_dynamic(given: str | Sequence[str] | Mapping[str, Any]) -> dict[str, DimNames]:
    """Parse `NAME=batch,_,height,width` texts (UsageError)."""
    pairs = parse_pairs(given, what="dynamic dimensions", form=_DYNAMIC_FORM)
    read: dict[str, DimNames] = {}
    for name, dims in pairs.items():
        names = [dim.strip() for dim in dims.split(",")] if isinstance(dims, str) else dims
        if not isinstance(names, Sequence) or not names or not all(each is None or each for each in names):
            raise UsageError(f"{dims!r} gives no dimension names for {name!r}", fix=_DYNAMIC_FORM)
        read[name] = tuple(None if each in (None, "_") else str(each) for each in names)
        for each in filter(None, read[name]):
            if each == "?" or each.isdecimal() or ".." in each or "|" in each:
                raise UsageError(
                    f"{each!r} is not a name for a dimension of {name!r}",
                    why="ONNX has no bounds" if ".." in each or "|" in each else "",
                    fix=f"{_DYNAMIC_FORM}; give sizes and bounds to a conversion: "
                    f"{quote_option('--shape', f'{name}=...')}",
                )
    return read


Specs = Annotated[dict[str, TensorSpec], BeforeValidator(parse_specs)]
Dynamic = Annotated[dict[str, DimNames], BeforeValidator(parse_dynamic)]


class ExportParams(Params):
    """The settings of an export to ONNX."""

    weights: InputPath | None = option(
        "State dict (.pt, .pth, .safetensors) or Keras weights (.weights.h5) for the model that a factory builds. Only "
        "tensors are read; no code in the file runs.",
        default=None,
        metavar="FILE",
    )
    arg: Entries = option(
        "An argument of the factory, as NAME=VALUE; the value is read as YAML.",
        default={},
        metavar="NAME=VALUE",
    )
    input: Specs = option(
        "An input of the model, in the model's order: NAME=1,3,224,224:float32. Also names the inputs of a frozen "
        "TensorFlow graph, or the columns of a table.",
        default={},
        metavar="NAME=DIMS:DTYPE",
    )
    dynamic: Dynamic = option(
        "Names for the dimensions that stay open: NAME=batch,_,height,width; _ keeps a size fixed. One name is one "
        "size everywhere.",
        default={},
        metavar="NAME=DIMS",
    )
    output_names: Names = option(
        "A name for each output, in their order; for a frozen TensorFlow graph, the outputs themselves.",
        default=(),
        metavar="NAME",
    )
    opset: Opset = option(
        "The opset of the ONNX file, or 'latest' for the newest that ONNX Runtime runs; the exporter's own unless "
        "given.",
        default=None,
    )
    exporter: Literal["dynamo", "torchscript"] = option(
        "PyTorch: torch.export, or the older tracing, which keeps no data-dependent control flow.",
        default="dynamo",
    )
    signature: str | None = option(
        "TensorFlow: the signature of a SavedModel; serving_default, or the only one, unless given.",
        default=None,
        metavar="NAME",
    )
    float64: bool = option(
        "Trees and tables: inputs and thresholds in float64, as scikit-learn computes.", default=False
    )
    zipmap: bool = option(
        "Classifiers: probabilities as a list of dictionaries, label to probability, instead of a tensor.",
        default=False,
    )
    trust: bool = option(
        "Load a pickle (.pkl, .joblib), the code in a Keras file, or a graph that opens files. Any may run any code.",
        default=False,
    )
    paddle2onnx: Path | None = option(
        "PaddlePaddle: the paddle2onnx command of the environment that has both; the one on PATH unless given.",
        default=None,
        metavar="PATH",
    )


# Options that apply to some kinds of models only (sources.KINDS), by field.
BELONGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("dynamic", "weights"), frozenset({"pytorch", "tensorflow"})),
    **dict.fromkeys(("float64", "zipmap"), frozenset({"sklearn", "xgboost", "lightgbm", "catboost"})),
    "output_names": frozenset({"pytorch", "tensorflow", "paddle"}),
    "exporter": frozenset({"pytorch"}),
    "signature": frozenset({"tensorflow"}),
    "paddle2onnx": frozenset({"paddle"}),
}

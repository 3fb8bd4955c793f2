"""The options of `onnxport export`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from onnxport.core.named_values import Entries
from onnxport.core.option_types import Names, Params, option
from onnxport.exporters.inputs import Dynamic, Specs
from onnxport.optimizers.params import Opset


class ExportParams(Params):
    """The settings of an export to ONNX."""

    weights: Path | None = option(
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
        "Load a pickle (.pkl, .joblib), or the code in a Keras file. Either may run any code.", default=False
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

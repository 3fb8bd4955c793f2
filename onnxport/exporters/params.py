"""The options of an export: YAML keys, command line options and keyword arguments.

Light on purpose, since every `--help` imports it: a field's description is its help text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from onnxport.core.named_values import Entries
from onnxport.exporters.inputs import Dynamic, Specs
from onnxport.optimizers.params import Opset

Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


class ExportParams(BaseModel):
    """Options of `onnxport export`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    weights: Path | None = Field(
        default=None,
        description="State dict (.pt, .pth, .safetensors) or Keras weights (.weights.h5) for the model that a factory "
        "builds; read as tensors alone, no code in it runs.",
        json_schema_extra={"metavar": "FILE"},
    )
    arg: Entries = Field(
        default={},
        description="An argument of the factory, as NAME=VALUE; the value is read as YAML.",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    input: Specs = Field(
        default={},
        description="What the model takes, in its order: NAME=1,3,224,224:float32. A frozen TensorFlow graph's inputs, "
        "or the columns of a table, are named so too.",
        json_schema_extra={"metavar": "NAME=DIMS:DTYPE"},
    )
    dynamic: Dynamic = Field(
        default={},
        description="Dimensions that stay open, by name: NAME=batch,_,height,width; _ keeps its size. One name is one "
        "size everywhere.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    output_names: Names = Field(
        default=(),
        description="A name for an output, in their order; of a frozen TensorFlow graph the outputs themselves.",
        json_schema_extra={"metavar": "NAME"},
    )
    opset: Opset = Field(
        default=None,
        description="The opset of the ONNX file, or 'latest' for the newest that ONNX Runtime runs; the exporter's own "
        "unless given.",
        json_schema_extra={"metavar": "N|latest"},
    )
    exporter: Literal["dynamo", "torchscript"] = Field(
        default="dynamo",
        description="PyTorch: torch.export, or the older tracing, which keeps no data-dependent control flow.",
    )
    signature: str | None = Field(
        default=None,
        description="TensorFlow: which signature of a SavedModel; serving_default, or the only one, unless given.",
        json_schema_extra={"metavar": "NAME"},
    )
    float64: bool = Field(
        default=False,
        description="Trees and tables: inputs and thresholds in float64, as scikit-learn computes.",
    )
    zipmap: bool = Field(
        default=False,
        description="Classifiers: probabilities as a list of dictionaries, label to probability, instead of a tensor.",
    )
    trust: bool = Field(
        default=False,
        description="Load a pickle (.pkl, .joblib), or the code in a Keras file: either may run anything.",
    )
    paddle2onnx: Path | None = Field(
        default=None,
        description="PaddlePaddle: the paddle2onnx command of the environment that has both; the one on PATH unless "
        "given.",
        json_schema_extra={"metavar": "PATH"},
    )


# The fields that say something to some kinds of models only (sources.KINDS), by field.
BELONGS: Mapping[str, frozenset[str]] = {
    "dynamic": frozenset({"pytorch", "tensorflow"}),
    "output_names": frozenset({"pytorch", "tensorflow", "paddle"}),
    "weights": frozenset({"pytorch", "tensorflow"}),
    "exporter": frozenset({"pytorch"}),
    "signature": frozenset({"tensorflow"}),
    "float64": frozenset({"sklearn", "xgboost", "lightgbm", "catboost"}),
    "zipmap": frozenset({"sklearn", "xgboost", "lightgbm", "catboost"}),
    "paddle2onnx": frozenset({"paddle"}),
}

"""What a user may set about validation: YAML keys, command line options and keyword arguments are this one model.

Light on purpose, since every `--help` imports it: a field's description is its help text.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from onnxport.shapes import Shapes

GENERATED = 3  # one of each kind of input (samples/generator.py)
READ = 20


class ValidateParams(BaseModel):
    """The proof that an artefact computes what its reference computes."""

    # Deferred: a --help imports this and validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; ? leaves a dimension open.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    inputs: Path | None = Field(
        default=None,
        description="Folder with inputs of your own: .npz, .npy or ONNX test_data_set_* folders.",
        json_schema_extra={"metavar": "DIR"},
    )
    samples: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description=f"Sets of inputs: how many to generate ({GENERATED} unless given), "
        f"or to read at most from --inputs ({READ} unless given).",
        json_schema_extra={"metavar": "N"},
    )
    seed: int = Field(
        default=0, ge=0, description="Seed of the generated inputs.", json_schema_extra={"metavar": "S"}
    )
    rtol: float | None = Field(
        default=None,
        ge=0,
        le=1,  # beyond, an answer of zeros would pass
        allow_inf_nan=False,
        description="Allow differences up to this share of each reference value, not the derived tolerance.",
        json_schema_extra={"metavar": "X"},
    )
    atol: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Allow differences up to this, not the derived tolerance.",
        json_schema_extra={"metavar": "X"},
    )
    accept_inconclusive: bool = Field(
        default=False,
        description="Accept outputs that no input makes vary beyond noise; the verdict is then 'unproven'.",
    )

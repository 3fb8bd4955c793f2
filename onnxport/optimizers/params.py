"""Options of `optimize`: YAML keys, command line options and keyword arguments come from this one model.

Every `--help` imports this module: keep it light. A field's description is its help text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from onnxport.core.errors import UsageError
from onnxport.formats.input_shapes import Shapes

# The oldest opset to convert a model to, and the newest that ONNX Runtime (1.31) runs.
LOWEST_OPSET, NEWEST_OPSET = 11, 26
# The oldest that a model may have: ONNX Runtime promises nothing below, so no lift from there could be proven.
OLDEST_OPSET = 7
# The opset that every converter takes (canonical_form.py).
CANONICAL_OPSET = 21


def _opset(given: object) -> object:
    if given == "latest" or given is None:
        return given
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not LOWEST_OPSET <= given <= NEWEST_OPSET:
        raise ValueError(f"give {LOWEST_OPSET} to {NEWEST_OPSET}, or latest")
    return given


Opset = Annotated[int | Literal["latest"] | None, BeforeValidator(_opset)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


class OptimizeParams(BaseModel):
    """How an ONNX model becomes a current, small one."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    opset: Opset = Field(
        default=None,
        description="The opset to bring the model to, up or down, or 'latest' for the newest that ONNX Runtime runs; "
        "its own unless given.",
        json_schema_extra={"metavar": "N|latest"},
    )
    simplify: bool = Field(default=True, description="Fold, fuse and remove nodes, until nothing changes.")
    level: Literal["basic", "extended", "ort-all"] = Field(
        default="basic",
        description="Which rewritings: those to ONNX's own operators; ONNX Runtime's fused operators as well; "
        "all that it does, for this kind of machine.",
    )
    passes: Path | None = Field(
        default=None,
        description="A YAML file with the names of the passes to run instead, in their order.",
        json_schema_extra={"metavar": "FILE"},
    )
    skip: Names = Field(
        default=(),
        description="A pass to leave out, by name.",
        json_schema_extra={"metavar": "PASS"},
    )
    prune_unused: bool = Field(
        default=False,
        description="Remove inputs that no output depends on, which changes the signature.",
    )
    shape: Shapes = Field(
        default={},
        description="Size of an input with open dimensions, as NAME=1,3,224,224; ? leaves a dimension open.",
        json_schema_extra={"metavar": "NAME=DIMS"},
    )
    drop_shapes: bool = Field(
        default=False,
        description="Leave out the shapes that the file declares of what nodes compute: some engines take it at these "
        "alone.",
    )
    fp16: bool = Field(
        default=False, description="Float16, but for what overflows in it, as quantize --fp16."
    )
    io: Literal["float", "fp16"] = Field(
        default="float",
        description="Float inputs and outputs of a float16 model: as they are, or float16 as well.",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.io != "float" and not self.fp16:
            raise UsageError("--io fp16 needs a float16 model", fix="give --fp16 as well, or leave --io out")
        if self.passes is not None and self.level != "basic":
            raise UsageError("--passes and --level exclude each other", fix="leave one of them out")
        for name in _OF_SIMPLIFYING:
            if not self.simplify and getattr(self, name) != type(self).model_fields[name].default:
                raise UsageError(
                    f"--{name} has no effect with --no-simplify",
                    fix="leave one of them out",
                )
        asked = (self.simplify, self.opset, self.prune_unused, self.shape, self.drop_shapes, self.fp16)
        if not any(asked):
            raise UsageError(
                "these options change nothing in the model",
                fix="leave --no-simplify out, or give --opset, --shape, --drop-shapes, --prune-unused or --fp16",
            )
        return self


_OF_SIMPLIFYING = ("level", "passes", "skip")

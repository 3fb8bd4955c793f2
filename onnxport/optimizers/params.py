"""Options of `optimize`: YAML keys, command line options and keyword arguments come from this one model.

Every `--help` imports this module: keep it light. A field's description is its help text.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from onnxport.core.errors import UsageError
from onnxport.core.option_types import Names, Params, option
from onnxport.formats.input_paths import InputPath
from onnxport.runtimes.feeding_options import Shape

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


Opset = Annotated[
    int | Literal["latest"] | None,
    BeforeValidator(_opset),
    option(
        "The opset to convert the model to, up or down, or 'latest' for the newest that ONNX Runtime runs; its own "
        "unless given.",
        metavar="N|latest",
    ),
]


class OptimizeParams(Params):
    """The settings of an optimization."""

    opset: Opset = None
    simplify: bool = option("Fold, fuse and remove nodes, until nothing changes.", default=True)
    level: Literal["basic", "extended", "ort-all"] = option(
        "Which rewrites: to ONNX's own operators only; also to ONNX Runtime's fused operators; or all of ONNX "
        "Runtime's, for this kind of machine.",
        default="basic",
    )
    passes: InputPath | None = option(
        "A YAML file with the names of the passes to run instead, in their order.",
        default=None,
        metavar="FILE",
    )
    skip: Names = option("A pass to leave out, by name.", default=(), metavar="PASS")
    prune_unused: bool = option(
        "Remove inputs that no output depends on. This changes the signature.", default=False
    )
    shape: Shape = option(
        "Size of an input with open dimensions, as NAME=1,3,224,224; ? keeps a dimension open.", default={}
    )
    drop_shapes: bool = option(
        "Leave out the inner shapes that the file declares. With them, some engines run it at these sizes only.",
        default=False,
    )
    fp16: bool = option("Float16, except for what overflows in it, as quantize --fp16.", default=False)
    io: Literal["float", "fp16"] = option(
        "Float inputs and outputs of a float16 model: unchanged, or float16 as well.", default="float"
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


class ExtractParams(Params):
    """Where a part of a model begins and ends."""

    inputs: Names = option(
        "A value at which the part begins, or several as A,B. The inputs of the model that it needs, unless given.",
        default=(),
        metavar="NAMES",
    )
    outputs: Names = option(
        "A value at which the part ends, or several as A,B. The outputs of the model, unless given.",
        default=(),
        metavar="NAMES",
    )
    samples_from: InputPath | None = option(
        "Folder with your own inputs of the whole model, as --inputs of the other commands.",
        default=None,
        metavar="DIR",
    )

    @model_validator(mode="after")
    def _cuts(self) -> Self:
        if not self.inputs and not self.outputs:
            raise UsageError("no cut is given", fix="give --inputs, --outputs or both, with names of values")
        return self

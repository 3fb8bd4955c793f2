"""Say what a user can do about a refused model: the cut that it converts with, as a command; or other samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from onnxport.core.errors import CannotConvertError, OnnxportError
from onnxport.core.shell_words import quote, quote_option
from onnxport.pipelines.runner.clock import Clock

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.optimizers.extraction import Cut

P = TypeVar("P", bound=BaseModel)

# Bytes of weights above which no cut is tried: the trial is a conversion.
_LARGEST = 256 * 2**20
# Advice that nothing has tried; other advice replaces it.
_UNTRIED = "onnx2tf may convert it"
# A part may be refused in its turn: behind a refused node others were not reached.
_TRIALS = 3


def advise_cut(
    refusal: CannotConvertError, model: Model, convert: Callable[[Model], object], clock: Clock
) -> CannotConvertError:
    """Return the error with the command that cuts the refused nodes off, if the part then converts.

    Args:
        model: the model of the user's file.
        convert: converts a part as the user asked, and shows no steps; what it raises means that the cut does not help.
    """
    is_about_sizes = any("--shape" in each.why for each in refusal.refusals)
    if not refusal.refusals or is_about_sizes or model.path is None or model.weight_bytes > _LARGEST:
        return refusal
    cut = None
    with suppress(OnnxportError), clock.phase("find a cut"):
        cut = _find_cut(refusal, model, convert)
    if cut is None:
        return refusal
    command = " ".join(("onnxport extract", quote(model.path), *_options(model, cut)))
    fix = f"the part without these nodes converts: {command} -o part.onnx"
    if tried := _find_tried_advice(refusal):
        fix = f"{tried}; {fix}"
    return _refuse_again(refusal, fix)


def advise_samples(refusal: CannotConvertError, suspicion: str) -> CannotConvertError:
    """Return the error of a quantized model with what looks wrong with its samples as the first advice."""
    tried = _find_tried_advice(refusal)
    return _refuse_again(refusal, f"{suspicion}; {tried}" if tried else suspicion)


def _find_tried_advice(refusal: CannotConvertError) -> str:
    """Return the refusal's own advice, unless nothing has tried it."""
    return "" if refusal.fix.startswith(_UNTRIED) else refusal.fix


def _refuse_again(refusal: CannotConvertError, fix: str) -> CannotConvertError:
    return CannotConvertError(refusal.what, why=refusal.why, fix=fix, refusals=refusal.refusals)


def _find_cut(refusal: CannotConvertError, model: Model, convert: Callable[[Model], object]) -> Cut | None:
    """Return a cut whose part converts; None if there is none."""
    import onnx_ir as ir

    from onnxport.optimizers.dataflow import Dataflow
    from onnxport.optimizers.extraction import extract, find_cut
    from onnxport.optimizers.smallest_cut import find_refused_nodes, smallest_cut

    flow, refused = Dataflow(model), set[ir.Node]()
    for _ in range(_TRIALS):
        more = find_refused_nodes(flow, refusal.refusals)
        if more is None or more <= refused:
            return None
        refused |= more
        found = smallest_cut(flow, refused)
        if found is None:
            return None
        cut = find_cut(model, found.inputs, found.outputs)  # as the command does it
        try:
            convert(extract(model, cut))
        except CannotConvertError as further:
            refusal = further
        else:
            return cut
    return None


def _options(model: Model, cut: Cut) -> list[str]:
    """Return the options of the command; an end that is the model's own is left out."""
    inputs, outputs = ([spec.name for spec in specs] for specs in (model.inputs, model.outputs))
    options = []
    if not set(cut.inputs) <= set(inputs):
        options += _option("--inputs", cut.inputs)
    if list(cut.outputs) != outputs:
        options += _option("--outputs", cut.outputs)
    return options


def _option(name: str, values: Sequence[str]) -> list[str]:
    """Return an option with all names, or one for each where a name has a comma."""
    texts = values if any("," in value for value in values) else [",".join(values)]
    return [quote_option(name, *texts)]


# Options about inputs and outputs, which a part may lack.
_BY_NAME = ("shape", "image", "labels", "state", "map")


def options_for_part(params: P, part: Model) -> P:
    """Return the options of a conversion as they apply to a part: our own route, and the values that it has."""
    names = {spec.name for spec in (*part.inputs, *part.outputs)}
    update: dict[str, object] = {
        field: {name: value for name, value in given.items() if name in names}
        for field in _BY_NAME
        if (given := getattr(params, field, None))
    }
    if getattr(params, "route", "") == "auto":
        update["route"] = "direct"
    return params.model_copy(update=update)

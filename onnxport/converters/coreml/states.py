"""Pairs of an input and an output that become states of Core ML, which keep their values between predictions."""

from __future__ import annotations

from collections.abc import Mapping

from onnxport.converters.params import CoremlParams
from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.formats.model import Model
from onnxport.samples.states import given_states


def parse_states(model: Model, params: CoremlParams) -> Mapping[str, str]:
    """Check the user's states (`--state`); return input name to the output that is its next value.

    Raises:
        UsageError: unknown names, shapes that do not fit or are open, a target or a precision without such states, or
            no other output left.
    """
    states = given_states(params.state, model.inputs, model.outputs)
    if not states:
        return states
    if int(params.minimum_target.removeprefix("iOS")) < 18:
        raise UsageError(
            f"Core ML has states from iOS18 on, not in {params.minimum_target}",
            fix="give --minimum-target iOS18, or leave out --state: the state then stays an input and an output",
        )
    shapes = {spec.name: spec.shape for spec in model.outputs}
    for spec in model.inputs:
        if spec.name not in states:
            continue
        name, shape, after = spec.name, spec.shape, shapes[states[spec.name]]
        is_float, is_half = spec.dtype.startswith("float"), params.precision in ("fp16", "mixed")
        if not is_float or (spec.dtype != "float16" and not is_half):
            rounding = "give --precision fp16 or mixed, which rounds it at every step"
            raise UsageError(
                f"--state {name!r} is of {spec.dtype}, and Core ML's states hold float16",
                fix=rounding if is_float else "leave it an input",
            )
        if not all(isinstance(dim, int) for dim in shape):
            sizes = ",".join(str(dim) if isinstance(dim, int) else "1" for dim in shape)
            raise UsageError(
                f"--state {name!r} has open sizes, and Core ML's states have none",
                fix=f"fix them with {quote_option('--shape', f'{name}={sizes}')}",
            )
        if after != shape:
            raise UsageError(
                f"--state {name}={states[name]}: the output does not fit the input",
                why=f"it has the shape {list(after)}, the state has {list(shape)}",
            )
    if len(states) == len(model.outputs):
        raise UsageError(
            "--state makes every output a state", fix="leave at least one output: Core ML's models need one"
        )
    return states

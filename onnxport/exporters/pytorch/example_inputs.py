"""Example inputs: `--input` specs bound to forward's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
import torch

from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.exporters.pytorch.outputs import to_tensor
from onnxport.formats.artifact import TensorSpec
from onnxport.samples.domain import declared_domains
from onnxport.samples.generator import generate

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# What torch.export takes for a size that is like any other: it reads 0 and 1 as fixed (broadcasting).
_LEAST_OPEN = 2


@dataclass(frozen=True)
class Call:
    """The arguments of a call of forward."""

    positional: tuple[str, ...]  # the inputs' names, in forward's order
    keywords: Mapping[str, str]  # parameter to input's name, in forward's order
    signature: inspect.Signature  # forward's

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs in torch.export's order."""
        return (*self.positional, *self.keywords.values())

    def arguments(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs as arguments and keyword arguments."""
        return (
            tuple(values[name] for name in self.positional),
            {parameter: values[name] for parameter, name in self.keywords.items()},
        )

    def by_parameter(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs by forward's parameters; *args as a tuple, **kwargs as a dictionary."""
        args, kwargs = self.arguments(values)
        return dict(self.signature.bind(*args, **kwargs).arguments)


def bind_inputs(
    module: torch.nn.Module, specs: Mapping[str, TensorSpec], name: str
) -> tuple[Call, list[str]]:
    """Bind each input to a parameter, that of its name or the next free one; return the call and notes.

    Raises UsageError for no inputs, too many or too few, with forward's signature and what to type.
    """
    signature = _signature(module)
    parameters = signature.parameters
    places = [key for key, each in parameters.items() if each.kind in _POSITIONAL]
    only_keywords = [key for key, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    takes_more = {each.kind for each in parameters.values()}
    if not parameters:
        raise UsageError(
            f"{name} takes no inputs", why="it is forward()", fix="export a module that computes from some"
        )
    for given in specs.values():
        if not isinstance(getattr(torch, given.dtype, None), torch.dtype):
            raise UsageError(
                f"PyTorch has no tensors of {given.dtype} (input {given.name!r})", fix="give another dtype"
            )
    if not specs:
        raise _refusal(signature, name, f"{name} needs an example of what it takes", "no input is given")
    taken = {spec: spec for spec in specs if spec in (*places, *only_keywords)}
    free = iter([key for key in places if key not in taken.values()])
    beyond: list[str] = []
    notes = []
    for spec in specs:
        if spec in taken:
            continue
        parameter = next(free, None)
        if parameter is not None:
            taken[spec] = parameter
            notes.append(f"input {spec!r} is forward's parameter {parameter!r}")
        elif inspect.Parameter.VAR_POSITIONAL in takes_more:
            beyond.append(spec)
        elif inspect.Parameter.VAR_KEYWORD in takes_more:
            taken[spec] = spec
        else:
            raise _refusal(
                signature, name, f"{name} takes no input {spec!r}", "forward has no parameter for it"
            )
    inputs = {parameter: spec for spec, parameter in taken.items()}
    for key, each in parameters.items():
        if (
            key not in inputs
            and each.kind in (*_POSITIONAL, each.KEYWORD_ONLY)
            and each.default is each.empty
        ):
            raise _refusal(signature, name, f"{name} lacks an input", f"forward needs {key!r}")
    leading = list(takewhile(inputs.__contains__, places))  # before the first that keeps its default
    if beyond and len(leading) < len(places):
        raise _refusal(
            signature, name, f"{name} lacks an input", f"*args come behind {places[len(leading)]!r}"
        )
    keywords = {key: inputs[key] for key in (*places, *only_keywords) if key in inputs and key not in leading}
    keywords |= {key: spec for key, spec in inputs.items() if key not in parameters}
    return Call((*(inputs[key] for key in leading), *beyond), keywords, signature), notes


def _signature(module: torch.nn.Module) -> inspect.Signature:
    """Return forward's signature; TorchScript has it as a schema, without keyword-only parameters."""
    if not isinstance(module, torch.jit.ScriptModule):
        return inspect.signature(module.forward)
    parameters = []
    for each in module.forward.schema.arguments[1:]:
        default = each.default_value if each.has_default_value() else inspect.Parameter.empty
        parameters.append(
            inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        )
    return inspect.Signature(parameters)


def _refusal(signature: inspect.Signature, name: str, what: str, why: str) -> UsageError:
    wanted = [
        key
        for key, each in signature.parameters.items()
        if each.kind in (*_POSITIONAL, each.KEYWORD_ONLY) and each.default is each.empty
    ] or list(signature.parameters)[:1]
    options = quote_option("--input", *(f"{key}=DIMS:DTYPE" for key in wanted))
    return UsageError(
        what,
        why=f"{why}; it is forward{signature}",
        fix=f"give {options}, for instance {wanted[0]}=1,3,224,224:float32, or {wanted[0]}=1,16:int64 for ids",
    )


def make_example(
    specs: Sequence[TensorSpec], sizes: Mapping[str, tuple[int, ...]]
) -> dict[str, torch.Tensor]:
    """Return a valid value of each input: ids and classes are 0 or 1, lengths within the sizes."""
    known = declared_domains(specs)
    for name, domain in known.items():
        if domain.kind in ("integer", "choice") and not domain.values:
            known[name] = replace(domain, low=0, high=1)  # for which every table has a row
    # NumPy lacks bfloat16.
    drawn = [replace(spec, dtype="float32") if spec.dtype == "bfloat16" else spec for spec in specs]
    made = generate(
        {each.name: (each, sizes[each.name]) for each in drawn}, known, kind="normal", seed=0, index=0
    )
    tensors = {spec.name: to_tensor(np.asarray(made[spec.name])) for spec in specs}
    return {
        spec.name: tensors[spec.name].to(torch.bfloat16) if spec.dtype == "bfloat16" else tensors[spec.name]
        for spec in specs
    }


def open_sizes(
    specs: Mapping[str, TensorSpec], dynamic: Mapping[str, Sequence[str | None]]
) -> dict[str, tuple[int, ...]]:
    """Return the sizes of torch.export's example: as given, 2 instead of 1 for an open dimension.

    Raises UsageError if --dynamic names no input, another rank, or different sizes by one name.
    """
    for name, names in dynamic.items():
        if name not in specs:
            raise UsageError(
                f"--dynamic is given for {name!r}, which is not an input",
                fix=f"the inputs are {', '.join(specs)}",
            )
        if len(names) != len(specs[name].shape):
            raise UsageError(
                f"--dynamic names {len(names)} dimensions of {name!r}, which has {len(specs[name].shape)}",
                fix="name every dimension, with _ for one that keeps its size",
            )
    found: dict[str, tuple[int, str]] = {}
    sizes = {}
    for name, spec in specs.items():
        names = dynamic.get(name, (None,) * len(spec.shape))
        given = [int(str(size)) for size in spec.shape]
        for dim, size in zip(names, given, strict=True):
            if dim is not None and found.setdefault(dim, (size, name))[0] != size:
                other, where = found[dim]
                raise UsageError(
                    f"the dimension {dim!r} is {other} in {where!r} and {size} in {name!r}",
                    why="one name is one size everywhere",
                    fix="give the examples the same size, or the dimensions two names",
                )
        sizes[name] = tuple(
            size if dim is None else max(size, _LEAST_OPEN) for dim, size in zip(names, given, strict=True)
        )
    return sizes

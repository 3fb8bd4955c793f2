"""The inputs of a model, as it declares them and as the user fixes and names them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxport.core.errors import UsageError
from onnxport.core.shell_words import quote_option
from onnxport.exporters.params import DTYPES, DimNames, ExportParams
from onnxport.formats.artifact import Dim, TensorSpec

BATCH = "batch"


@dataclass(frozen=True)
class DeclaredInput:
    """An input as the model declares it."""

    name: str
    dtype: str
    # None for a dimension that the model leaves open; None as a whole where not even the rank is known.
    shape: tuple[int | None, ...] | None


def bind_inputs(
    declared: Sequence[DeclaredInput], params: ExportParams, model: str
) -> tuple[TensorSpec, ...]:
    """Size every dimension by --input and name it by --dynamic, or by us: "batch" the first.

    Raises UsageError for an unknown input, or a size, dtype or open dimension that does not fit the declaration.
    """
    names = [each.name for each in declared]
    for option, given in (("--input", params.input), ("--dynamic", params.dynamic)):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise UsageError(f"{model} has no input {unknown[0]!r}", fix=f"{option} takes one of {names}")
    return tuple(
        _bind_input(each, params.input.get(each.name), params.dynamic.get(each.name)) for each in declared
    )


def inputs_from_params(params: ExportParams) -> tuple[DeclaredInput, ...]:
    """Return the inputs of --input for a model that declares none; --dynamic opens dimensions."""
    declared = []
    for name, spec in params.input.items():
        names = params.dynamic.get(name, (None,) * len(spec.shape))
        _check_rank(name, len(names), len(spec.shape), "--dynamic names")
        shape = tuple(None if open_ else int(str(dim)) for dim, open_ in zip(spec.shape, names, strict=True))
        declared.append(DeclaredInput(name, spec.dtype, shape))
    return tuple(declared)


def _bind_input(declared: DeclaredInput, given: TensorSpec | None, dynamic: DimNames | None) -> TensorSpec:
    name, shape = declared.name, declared.shape
    if declared.dtype not in DTYPES:
        raise UsageError(f"input {name!r} is {declared.dtype}, which ONNX files do not take")
    if shape is None:
        if given is None:
            raise UsageError(
                f"input {name!r} has any number of dimensions",
                why="an ONNX file needs to know how many",
                fix=f"give {quote_option('--input', f'{name}=1,224,224,3')} with its sizes, and --dynamic for those "
                "that stay open",
            )
        shape = (None,) * len(given.shape)
    sizes: Sequence[Dim] = (None,) * len(shape)
    if given is not None:
        # --input means float32 where it names no dtype.
        if given.dtype not in ("float32", declared.dtype):
            raise UsageError(f"input {name!r} is {declared.dtype} in the model, not {given.dtype}")
        _check_rank(name, len(given.shape), len(shape), "--input gives")
        sizes = given.shape
    if dynamic is not None:
        _check_rank(name, len(dynamic), len(shape), "--dynamic names")
    axes = zip(shape, sizes, dynamic or (None,) * len(shape), strict=True)
    return TensorSpec(
        name,
        declared.dtype,
        tuple(_dim(name, axis, *each, kept=dynamic is not None) for axis, each in enumerate(axes)),
    )


def _dim(name: str, axis: int, own: int | None, size: Dim, dynamic: str | None, *, kept: bool) -> Dim:
    """Return one dimension: `own` of the model, `size` of --input, `dynamic` of --dynamic (None for `_` if `kept`)."""
    if dynamic is not None:
        if own is not None:
            raise UsageError(
                f"dimension {axis} of input {name!r} cannot stay open as {dynamic!r}",
                why=f"the model has {own} there",
            )
        return dynamic
    if own is not None:
        if size not in (None, own):
            raise UsageError(f"dimension {axis} of input {name!r} is {own} in the model, not {size}")
        return own
    if size is None and kept:
        raise UsageError(
            f"dimension {axis} of input {name!r} has no size that it could keep",
            why="the model leaves it open",
            fix="give it a size with --input, or a name in place of _",
        )
    return (BATCH if axis == 0 else f"{name}_dim_{axis}") if size is None else size


def _check_rank(name: str, given: int, wanted: int, who: str) -> None:
    if given != wanted:
        raise UsageError(f"{who} {given} dimensions for input {name!r}, which has {wanted}")


def leaves(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return the tensors of a result with their paths: keys of dicts, positions in lists; None is no result."""
    if isinstance(result, Mapping):
        for key, value in result.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(result, (list, tuple)):
        keys = getattr(result, "_fields", range(len(result)))
        for key, value in zip(keys, result, strict=True):
            yield from leaves(
                value, f"{path}.{key}" if path else (key if isinstance(key, str) else f"output_{key}")
            )
    elif result is not None:
        yield path or "output", result


def call_by_name(
    called: Callable[..., Any], described: Callable[..., Any], names: tuple[str, ...], **fixed: Any
) -> Callable[[Mapping[str, Any]], Any]:
    """Return `called` with tensors by name.

    Names that are all parameters are passed as such, a single tensor by position, several to a function of several
    parameters by position, and to one of a single parameter (Keras: `call(inputs)`) as a list.

    Args:
        described: the function whose signature counts.
        fixed: further arguments, dropped where it does not take them.
    """
    parameters = inspect.signature(described).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    extra = {name: value for name, value in fixed.items() if anything or name in parameters}
    wanted = [
        each
        for each in parameters.values()
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(names) > 1 and all(name in parameters for name in names):
        # The first by position: Keras wants it so.
        first, *others = sorted(names, key=list(parameters).index)
        return lambda tensors: called(tensors[first], **{name: tensors[name] for name in others}, **extra)
    if len(names) > 1 and len(wanted) == 1:
        return lambda tensors: called([tensors[name] for name in names], **extra)
    return lambda tensors: called(*(tensors[name] for name in names), **extra)

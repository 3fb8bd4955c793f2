"""Capture a module as an ExportedProgram, for every size of the open dimensions."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from onnxport.core.errors import CannotConvertError
from onnxport.exporters.pytorch.errors import at_place, capture_error, place_of_frame
from onnxport.exporters.pytorch.example_inputs import Call
from onnxport.exporters.pytorch.recurrence import KeepWhole

Dims = Mapping[str, Sequence[str | None]]
_SIZES = "torch.fx.experimental.symbolic_shapes"  # torch's logger of what becomes of open dimensions
_CREATED = re.compile(r"create_symbol (\w+) = \d+ for (\S+)\.size\(\)\[(\d+)\]")
_SETTLED = re.compile(r"set_replacement (\w+) = ")


def capture(
    module: torch.nn.Module, call: Call, tensors: Mapping[str, torch.Tensor], dynamic: Dims, name: str
) -> torch.export.ExportedProgram:
    """Export a module that runs on `tensors` with torch.export; `dynamic` names each input's open dimensions.

    Raises CannotConvertError with the place in the user's source, also if an open dimension has one size.
    """
    program = _export_program(module, call, tensors, dynamic, name)
    fixed = _fixed_dimensions(program, call, dynamic)
    if fixed:
        places = _places(module, call, tensors, dynamic, name)
        raise _unused_names(fixed, tensors, dynamic, places, name)
    return program


def _export_program(
    module: torch.nn.Module, call: Call, tensors: Mapping[str, torch.Tensor], dynamic: Dims, name: str
) -> torch.export.ExportedProgram:
    args, kwargs = call.arguments(tensors)
    # AUTO and not DYNAMIC: what becomes of a dimension is then seen in the program, instead of read in a message.
    auto = torch.export.Dim.AUTO
    axes = {
        key: {axis: auto for axis, dim in enumerate(dynamic.get(key, ())) if dim is not None} or None
        for key in tensors
    }
    try:
        with torch.no_grad(), KeepWhole():
            return torch.export.export(
                module, args, kwargs, dynamic_shapes=call.by_parameter(axes), strict=False
            )
    except Exception as error:  # torch.export runs the user's code and raises whatever that does
        raise capture_error(error, module, name) from error


def symbolic_inputs(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the user's inputs by name as torch.export sees them, without values and without constants."""
    wanted = set(program.graph_signature.user_inputs)
    return {
        node.name: node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in wanted and isinstance(node.meta.get("val"), torch.Tensor)
    }


def is_fixed(size: int | torch.SymInt) -> bool:
    """Return whether a size is a number, or a symbol that torch.export found to be one."""
    return str(size).isdecimal()


def _fixed_dimensions(
    program: torch.export.ExportedProgram, call: Call, dynamic: Dims
) -> list[tuple[str, int]]:
    """Return input and axis of dimensions that should be open and have one size."""
    return [
        (name, axis)
        for name, seen in zip(call.names, symbolic_inputs(program).values(), strict=True)
        for axis, dim in enumerate(dynamic.get(name, ()))
        if dim is not None and is_fixed(seen.shape[axis])
    ]


def _unused_names(
    fixed: Sequence[tuple[str, int]],
    tensors: Mapping[str, torch.Tensor],
    dynamic: Dims,
    places: Mapping[tuple[str, int], str],
    name: str,
) -> CannotConvertError:
    said = [
        f"{dynamic[key][axis]!r} (axis {axis} of {key!r}) is always {tensors[key].shape[axis]}"
        f"{at_place(places.get((key, axis), ''))}"
        for key, axis in fixed
    ]
    sizes = {tensors[key].shape[axis] for key, axis in fixed}
    others = [
        f"axis {axis} of {key!r}"
        for key, tensor in tensors.items()
        for axis, size in enumerate(tensor.shape)
        if size in sizes and (key not in dynamic or dynamic[key][axis] is None)
    ]
    same = " and ".join(others)
    again = f"; of that size is {same}, too: name it as well where it is the same" if others else ""
    return CannotConvertError(
        f"{name} computes with one size of an open dimension",
        why="; ".join(said),
        fix=f"take the size from the tensor there (x.shape[0], view(-1, ...)), or leave it out of --dynamic{again}",
    )


def _places(
    module: torch.nn.Module, call: Call, tensors: Mapping[str, torch.Tensor], dynamic: Dims, name: str
) -> dict[tuple[str, int], str]:
    """Return the places in the user's source that fixed open dimensions, as far as torch tells."""
    inputs = call.by_parameter({key: key for key in tensors}).items()
    sources = {f"L['{parameter}']": key for parameter, key in inputs if isinstance(key, str)}
    named: dict[str, tuple[str, int]] = {}
    found: dict[tuple[str, int], str] = {}

    def told(message: str) -> None:
        if created := _CREATED.match(message):
            symbol, source, axis = created.groups()
            named[symbol] = sources.get(source, ""), int(axis)
        elif (settled := _SETTLED.match(message)) and settled[1] in named:
            found.setdefault(named[settled[1]], place_of_frame(sys._getframe(), module))

    with _listen(told):
        _export_program(module, call, tensors, dynamic, name)
    return found


@contextmanager
def _listen(told: Callable[[str], None]) -> Iterator[None]:
    """Call `told` with torch's log lines about sizes inside the block."""

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told(record.getMessage())

    logger, listener = logging.getLogger(_SIZES), Listener()
    level, propagates = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagates

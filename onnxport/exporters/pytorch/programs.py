"""Exported programs (.pt2): a graph with example inputs and open dimensions, read without running its code.

torch.export.load falls back to pickles, loads shared libraries and evaluates expressions; such files need --trust.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from onnxport.core.archives import DAMAGED_ARCHIVE
from onnxport.core.errors import CannotConvertError, InputError, UsageError
from onnxport.exporters.params import ExportParams
from onnxport.exporters.pytorch.capture import is_fixed, symbolic_inputs
from onnxport.exporters.pytorch.errors import first_line
from onnxport.exporters.pytorch.modules import TorchModel, of_program
from onnxport.exporters.pytorch.outputs import register_dataclasses
from onnxport.exporters.pytorch.states import BufferStates
from onnxport.exporters.sources import is_archive

# Parts of an archive that hold code: native libraries, and objects of other classes than tensors.
_CODE = re.compile(r"/(aotinductor|executorch)/|/(custom_obj|opaque_obj)[^/]*$")
_OPENS_FILES = re.compile(r"from_file|aten\.save\b")
# What an expression of sizes is made of, but for the names of symbols; SymPy evaluates anything.
_SYMBOL = re.compile(r"Symbol\('\w+'")
_ARITHMETIC = re.compile(r"[A-Za-z0-9_ +\-*/%(),<>=&|~.]*")
_ATTRIBUTE = re.compile(r"__|[A-Za-z_)]\s*\.|\.\s*[A-Za-z_]")


def load(path: Path, *, trust: bool) -> torch.export.ExportedProgram:
    """Read a `.pt2` file. Raises InputError: none, of another version, or with code in it and no trust."""
    if not is_archive(path):
        raise InputError(
            f"{path} is not an exported program",
            why="it is not an archive",
            fix="write one with torch.export.save",
        )
    if not trust:
        _refuse_code(path)
    try:
        with _tensors_only(not trust):
            program: torch.export.ExportedProgram = torch.export.load(path)
    except pickle.UnpicklingError as error:
        raise _untrusted_error(path, "it holds objects other than tensors") from error
    except Exception as error:  # of a damaged or older file torch raises anything
        raise InputError(
            f"{path} cannot be read as an exported program",
            why=first_line(error),
            fix=f"save it again with torch {torch.__version__}: torch.export.save(program, 'program.pt2')",
        ) from error
    return program


def _refuse_code(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if _CODE.search(f"/{name}"):
                    raise _untrusted_error(path, f"it holds {name.rpartition('/')[2]}, which is code")
                content = json.loads(archive.read(name)) if name.endswith(".json") else None
                if opens := _OPENS_FILES.search(json.dumps(content)):
                    raise _untrusted_error(path, f"it opens files of this machine ({opens[0]})")
                found = _expressions(content)
                if not all(map(_is_arithmetic, found)):
                    raise _untrusted_error(path, "it has a size that is not plain arithmetic")
    except DAMAGED_ARCHIVE as error:
        raise InputError(f"{path} cannot be read as an exported program", why=first_line(error)) from error


def _untrusted_error(path: Path, why: str) -> InputError:
    return InputError(
        f"{path} is not loaded", why=why, fix="give --trust if you know who wrote it: it may run any code"
    )


def _expressions(content: Any) -> Iterator[str]:
    """Return the values of every "expr_str" in a JSON document."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "expr_str":
                yield str(value)
            else:
                yield from _expressions(value)
    elif isinstance(content, list):
        for value in content:
            yield from _expressions(value)


def _is_arithmetic(expression: str) -> bool:
    unnamed = _SYMBOL.sub("Symbol(", expression)
    return bool(_ARITHMETIC.fullmatch(unnamed)) and not _ATTRIBUTE.search(unnamed)


@contextmanager
def _tensors_only(wanted: bool) -> Iterator[None]:
    """Make torch.load refuse everything but tensors, whoever calls it."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    if wanted:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def of_exported(program: torch.export.ExportedProgram, params: ExportParams, name: str) -> TorchModel:
    """Return the Framework of an exported program; its inputs and open dimensions are fixed.

    Raises:
        UsageError: --input, or --dynamic for what is not open.
        CannotConvertError: it takes what is no tensor.
    """
    if params.input:
        raise UsageError(f"{name} has its example inputs in it", fix="leave --input out")
    if params.exporter == "torchscript":
        raise UsageError(
            f"{name} is an exported program, which cannot be traced", fix="leave --exporter torchscript out"
        )
    fakes = symbolic_inputs(program)
    _check_dynamic(params, fakes, name)
    module = program.module()
    args, kwargs = _example(program, name)
    states = BufferStates(module)
    with torch.no_grad():
        answer = module(*args, **kwargs)
    states.learn()
    register_dataclasses(answer)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(tensors: Mapping[str, torch.Tensor]) -> Any:
        filled = list(leaves)
        for place, key in zip(places, fakes, strict=True):
            filled[place] = tensors[key]
        given, named = pytree.tree_unflatten(filled, spec)
        return module(*given, **named)

    return of_program(program, fakes, params, name, forward, answer, states, ())


def _check_dynamic(params: ExportParams, fakes: Mapping[str, torch.Tensor], name: str) -> None:
    """Refuse to open dimensions that the program fixes; names of open ones are accepted."""
    for key, dims in params.dynamic.items():
        if key not in fakes or len(dims) != fakes[key].ndim:
            known = ", ".join(f"{each} of rank {fake.ndim}" for each, fake in fakes.items())
            raise UsageError(f"--dynamic does not fit {key!r} of {name}", fix=f"its inputs are {known}")
        for axis, dim in enumerate(dims):
            if dim is not None and is_fixed(fakes[key].shape[axis]):
                raise UsageError(
                    f"{name} has axis {axis} of {key!r} fixed at {fakes[key].shape[axis]}",
                    fix="open it when the program is made: torch.export.export(..., dynamic_shapes=...)",
                )


def _example(program: torch.export.ExportedProgram, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        return args, kwargs
    raise CannotConvertError(
        f"{name} has no example inputs",
        why="it was made without",
        fix="make it with torch.export.export(module, args) and save it again",
    )

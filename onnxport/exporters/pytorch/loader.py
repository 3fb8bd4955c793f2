"""Load a factory's module, an exported program or a TorchScript archive as a Framework."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from onnxport.core.archives import DAMAGED_ARCHIVE
from onnxport.core.errors import InputError, UsageError
from onnxport.core.shell_words import quote
from onnxport.exporters.params import ExportParams
from onnxport.exporters.pytorch import programs, weights
from onnxport.exporters.pytorch.errors import first_line
from onnxport.exporters.pytorch.modules import TorchModel, of_module
from onnxport.exporters.sources import Source

# Operators of TorchScript that read or write files, and what could name them otherwise: all but the number of a module
# in a Sequential. They are words anywhere, because `f = torch` gives torch another name.
_OPENS_FILES = re.compile(rb"""from_file|getattr(?!\([\w.]+, "\d+"\))|\bsave\b""")
_FACTORY = "onnxport export package.module:function --weights {path} --input x=1,3,224,224:float32"


def load(source: Source, params: ExportParams) -> TorchModel:
    """Return the Framework of a file.

    Raises:
        UsageError: a file of weights alone; what to give instead.
        InputError: it cannot be read.
    """
    path = source.path
    if path.suffix.lower() == ".pt2":
        weights.refuse_weights(params.weights, source.name)
        return programs.of_exported(programs.load(path, trust=params.trust), params, source.name)
    if path.suffix.lower() != ".safetensors" and weights.is_torchscript(path):
        return _load_script(path, params)
    try:
        weights.read_tensors(path)
        why = "it holds weights but no computation"
    except InputError as error:
        why = f"{error.why or error.what}, and a pickled module is not loaded"
    raise UsageError(
        f"{path} is not an exportable model",
        why=why,
        fix=f"name the function that builds the module: {_FACTORY.format(path=quote(path))}",
    )


def _load_script(path: Path, params: ExportParams) -> TorchModel:
    weights.refuse_weights(params.weights, str(path))
    _check_scripted(params, str(path))
    if not params.trust:
        _refuse_files(path)
    try:
        module = torch.jit.load(path, map_location="cpu")
    except (RuntimeError, ValueError, LookupError) as error:  # what it quotes may be no UTF-8
        raise InputError(f"{path} cannot be read as TorchScript", why=first_line(error)) from error
    return of_module(module, params, str(path))


def _refuse_files(path: Path) -> None:
    """Refuse a script that opens files (InputError): loading it may run it."""
    try:
        with zipfile.ZipFile(path) as archive:
            codes = [name for name in archive.namelist() if "/code/" in f"/{name}" and name.endswith(".py")]
            found = next((name for name in codes if _OPENS_FILES.search(archive.read(name))), None)
    except DAMAGED_ARCHIVE as error:
        raise InputError(f"{path} cannot be read as TorchScript", why=first_line(error)) from error
    if found is not None:
        raise InputError(
            f"{path} opens files of this machine",
            why=f"{found} calls from_file or save",
            fix="give --trust if you know where it comes from",
        )


def _check_scripted(params: ExportParams, name: str) -> None:
    if params.exporter != "torchscript":
        raise UsageError(
            f"{name} is TorchScript, which torch.export does not take",
            fix="give --exporter torchscript, or a factory of the module that it was scripted from",
        )


def of_object(model: Any, source: Source, params: ExportParams) -> TorchModel:
    """Return the Framework of a factory's result; UsageError for neither a module nor an exported program."""
    name = source.name
    if isinstance(model, torch.export.ExportedProgram):
        weights.refuse_weights(params.weights, name)
        return programs.of_exported(model, params, name)
    if isinstance(model, torch.jit.ScriptModule):
        _check_scripted(params, name)
    elif not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"{name} returns a {type(model).__name__}, not a module",
            fix="return a torch.nn.Module or a torch.export.ExportedProgram",
        )
    notes = weights.load_weights(model, params.weights) if params.weights is not None else []
    return of_module(model, params, name, notes)

"""Load a state dict into a factory's module; only tensors are read, so no code in the file runs."""

from __future__ import annotations

import errno
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxport.core.archives import DAMAGED_ARCHIVE
from onnxport.core.errors import InputError, UsageError
from onnxport.core.missing_paths import missing_path
from onnxport.exporters.pytorch.errors import first_line
from onnxport.exporters.sources import is_archive

Tensors = Mapping[str, torch.Tensor]

# What training scripts put a state dict under, beside the optimizer's.
_NESTS = "state_dict model_state_dict model net network weights params ema_state_dict model_ema".split()
# What wrappers put before every key: DataParallel, torch.compile, Lightning and their like.
_PREFIXES = "module. _orig_mod. model. net. network.".split()
_LISTED = 6  # keys of a kind in a message


def load_weights(module: torch.nn.Module, path: Path) -> list[str]:
    """Load the tensors of `path` into `module`, and return notes; InputError if they cannot be read or do not fit."""
    notes: list[str] = []
    state = _strip_prefix(_find_state_dict(read_tensors(path), path, notes), module, notes)
    own = module.state_dict(keep_vars=True)
    _check_fit(module, own, state, path)
    fitting = {key: tensor for key, tensor in state.items() if key in own}
    on_meta = any(tensor.is_meta for tensor in own.values())
    module.load_state_dict(fitting, strict=False, assign=on_meta)
    dtypes = (
        {(str(tensor.dtype), str(own[key].dtype)) for key, tensor in fitting.items()}
        if not on_meta
        else set()
    )
    notes += [
        f"weights of {had} were read as {has}, the module's own" for had, has in sorted(dtypes) if had != has
    ]
    return notes


def read_tensors(path: Path) -> Mapping[str, Any]:
    """Return the content of a `.pt`, `.pth` or `.safetensors` file, mapped from disk where possible (InputError)."""
    if not path.exists():
        raise missing_path(path)
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    if path.suffix.lower() == ".safetensors":
        import safetensors
        import safetensors.torch

        try:
            return safetensors.torch.load_file(path)
        except safetensors.SafetensorError as error:
            raise InputError(f"{path} cannot be read as .safetensors", why=first_line(error)) from error
    if is_torchscript(path):
        raise InputError(
            f"{path} is a TorchScript archive, no state dict",
            fix=f"save one: torch.save(torch.jit.load({path.name!r}).state_dict(), 'weights.pt')",
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive(path))
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} is not a state dict",
            why="it holds more than tensors, and what else a pickle holds may run any code"
            if "weights_only" in str(error) or "Unsupported" in str(error)
            else first_line(error),
            fix="save the tensors alone where you trust it: torch.save(module.state_dict(), 'weights.pt')",
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # of a damaged file torch raises anything
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        why = "it is cut off" if isinstance(error, OSError) else first_line(error)
        raise InputError(f"{path} cannot be read as a state dict", why=why) from error
    if not isinstance(found, Mapping):
        raise InputError(f"{path} is not a state dict", why=f"it holds a {type(found).__name__}")
    return found


def is_torchscript(path: Path) -> bool:
    if not is_archive(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.partition("/")[2] == "constants.pkl" for name in archive.namelist())
    except DAMAGED_ARCHIVE:
        return False  # torch says what is wrong with it


def _find_state_dict(found: Mapping[str, Any], path: Path, notes: list[str]) -> Tensors:
    """Return the state dict itself, or the one in a checkpoint."""
    if _is_state(found):
        return {key: each for key, each in found.items() if isinstance(each, torch.Tensor)}
    for nest in (*_NESTS, *found):
        inner = found.get(nest)
        if isinstance(inner, Mapping) and _is_state(inner):
            others = [str(key) for key in found if key != nest]
            beside = f", beside {_format_names(others)}" if others else ""
            notes.append(f"the weights are those under {nest!r} of {path.name}{beside}")
            return {key: each for key, each in inner.items() if isinstance(each, torch.Tensor)}
    raise InputError(
        f"{path} holds no state dict",
        why=f"it holds {_format_names([str(key) for key in found])}, and tensors by name under none of them",
        fix="save one: torch.save(module.state_dict(), 'weights.pt')",
    )


def _is_state(found: Mapping[Any, Any]) -> bool:
    """Return whether these are tensors by name; some modules add other extra state."""
    tensors = [key for key, each in found.items() if isinstance(each, torch.Tensor)]
    others = [key for key, each in found.items() if isinstance(each, Mapping)]
    return bool(tensors) and not others and all(isinstance(key, str) for key in found)


def _strip_prefix(state: Tensors, module: torch.nn.Module, notes: list[str]) -> Tensors:
    own = set(module.state_dict())
    while not own & set(state):
        prefix = next((each for each in _PREFIXES if all(key.startswith(each) for key in state)), None)
        if prefix is None:
            return state
        notes.append(f"the weights' names were read without the prefix {prefix!r}")
        state = {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    return state


def _check_fit(module: torch.nn.Module, own: Mapping[str, Any], state: Tensors, path: Path) -> None:
    """Refuse a state dict that does not match the module; one message names all differences."""
    given = {id(own[key]) for key in state if key in own}
    missing = [
        key
        for key, tensor in own.items()
        if isinstance(tensor, torch.Tensor)
        and key not in state
        and id(tensor) not in given  # a tied weight is saved under one of its names
        and not key.endswith("num_batches_tracked")  # inference has no use for it, and old files lack it
    ]
    unexpected = [key for key in state if key not in own]
    sizes = [
        f"{key} {list(tensor.shape)} for {list(own[key].shape)}"
        for key, tensor in state.items()
        if key in own and tensor.shape != own[key].shape
    ]
    kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", sizes))
    wrong = [f"{len(keys)} {kind}: {_format_names(keys)}" for kind, keys in kinds if keys]
    if wrong:
        raise InputError(
            f"the weights in {path} do not fit {type(module).__name__}",
            why="; ".join(wrong),
            fix="build the module as it was when they were saved; --arg NAME=VALUE hands the factory its arguments",
        )


def _format_names(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return ", ".join(keys[:_LISTED]) + more


def refuse_weights(path: Path | None, name: str) -> None:
    """Refuse --weights for a model that has its own (UsageError)."""
    if path is not None:
        raise UsageError(f"{name} has its weights in it", fix="leave --weights out")

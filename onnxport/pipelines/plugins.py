"""Stages and targets of plugins: found by their entry points, imported when a pipeline names one.

At import it needs the standard library only, so `onnxport doctor` can list plugins if everything else is missing.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxport.core import plugins, reads
from onnxport.core.errors import MachineError, OnnxportError
from onnxport.core.plugins import GROUPS, Kind, Plugin, one_line, stdout_to_stderr, unusable
from onnxport.pipelines.environment import TARGETS

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.pipelines.stages import Product, Stage, Work, Worker

# Names with a fixed meaning in pipelines and reports; onnx is the target without a stage, export is no stage.
RESERVED = frozenset((*TARGETS, "optimize", "quantize", "onnx", "export"))
# Errors of the machine, not of the plugin.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def find(kind: Kind, name: str) -> Stage | None:
    """Return the plugin's stage of that name or None; MissingDependencyError if two have it, or it cannot be used."""
    plugin = plugins.find(kind, name, RESERVED)
    return None if plugin is None else load(plugin)


@functools.cache
def load(plugin: Plugin) -> Stage:
    """Import a plugin's stage and check it against the contract; MissingDependencyError if either fails."""
    from onnxport.pipelines.stages import Provider

    stage = plugins.load(plugin)
    if fault := _fault(plugin, stage):
        raise unusable(plugin, fault)
    modules = (plugin.module, stage.params.__module__, stage.worker.partition(":")[0])
    try:
        provider = Provider(plugin.distribution, plugin.version, modules, source_digest(modules))
    except (ImportError, OSError) as error:
        raise unusable(plugin, f"its code cannot be read: {one_line(error)}") from error
    found: Stage = replace(
        stage, libraries=(*dict.fromkeys((*stage.libraries, plugin.distribution)),), provider=provider
    )
    return found


def _fault(plugin: Plugin, stage: Any) -> str:
    """Describe how `stage` breaks the contract; empty if it does not."""
    from pydantic import BaseModel

    from onnxport.formats.artifact import SUFFIXES
    from onnxport.pipelines.config.schema import StageSpec, TargetSpec, keys_of
    from onnxport.pipelines.stages import Stage

    what = plugin.place
    if not isinstance(stage, Stage):
        return f"{what} is of type {type(stage).__name__}, not a Stage of onnxport.pipelines.stages"
    if stage.name != plugin.name:
        return (
            f"{what} has the name {stage.name!r}, but its entry point {plugin.name!r}; they must be the same"
        )
    if not isinstance(stage.params, type) or not issubclass(stage.params, BaseModel):
        return f"the params of {what} are not a pydantic model"
    if getattr(sys.modules.get(stage.params.__module__), stage.params.__qualname__, None) is not stage.params:
        return (
            f"the params of {what} cannot be imported by their name; define the class at a module's top level"
        )
    section = StageSpec if plugin.kind == "stage" else TargetSpec
    if taken := stage.params.model_fields.keys() & keys_of(section):
        return f"{what} has the option {min(taken)!r}, which is a key of every {plugin.kind} of a pipeline"
    if stage.takes != "onnx":
        return f"{what} takes {stage.takes!r}; a stage must take onnx"
    if plugin.kind == "stage" and stage.gives != "onnx":
        return (
            f"{what} gives {stage.gives!r}; a stage must give onnx, a target has the group {GROUPS['target']}"
        )
    if stage.gives not in SUFFIXES:
        return f"{what} gives {stage.gives!r}; formats that can be proven are {', '.join(SUFFIXES)}"
    if not isinstance(stage.libraries, tuple) or not all(isinstance(each, str) for each in stage.libraries):
        return f"the libraries of {what} are not a tuple of distribution names"
    if not isinstance(stage.worker, str) or not all(stage.worker.partition(":")):
        return f"the worker of {what} is {stage.worker!r}; write module:function"
    return ""


def source_digest(modules: tuple[str, ...]) -> str:
    """Return the SHA-256 of the packages of `modules`, or of single modules; ImportError if one is missing."""
    tree = hashlib.sha256()
    for name in sorted({_home(module) for module in modules}):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(f"no module named {name!r}")
        folder = Path(spec.origin).parent
        is_package = bool(spec.submodule_search_locations)
        look, place = (reads.tree, str(folder)) if is_package else (reads.file, spec.origin)
        reads.look(look, place)
        files = sorted(folder.rglob("*")) if is_package else [Path(spec.origin)]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                content = hashlib.sha256(file.read_bytes()).digest()
                tree.update(f"{name}/{file.relative_to(folder).as_posix()}\0".encode() + content)
    return tree.hexdigest()


def _home(module: str) -> str:
    """Return the outermost package of a module that is no namespace package."""
    parts = module.split(".")
    for count in range(1, len(parts)):
        name = ".".join(parts[:count])
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            return name
    return module


@contextlib.contextmanager
def guard_worker(stage: Stage) -> Iterator[Worker]:
    """Run a plugin's worker and check its product; MachineError, with the plugin's name, for any error but ours."""
    with contextlib.ExitStack() as stack:
        with _blame_plugin(stage):
            worker = stack.enter_context(stage.started())

        def make(model: Model, params: Any, work: Work) -> Product:
            with _blame_plugin(stage):
                return _check_product(worker(model, params, work), stage, work)

        yield make


def _check_product(product: Any, stage: Stage, work: Work) -> Product:
    """Return the product; TypeError if it is none of `stage`."""
    from onnxport.pipelines.stages import Product

    if not isinstance(product, Product):
        raise TypeError(f"its worker returned {type(product).__name__}, not a Product")
    artifact = product.artifact
    if artifact.format != stage.gives or artifact.path != work.output or not artifact.path.exists():
        raise TypeError(f"its worker left no {stage.gives} model at work.output")
    return product


@contextlib.contextmanager
def _blame_plugin(stage: Stage) -> Iterator[None]:
    try:
        with stdout_to_stderr():
            yield
    except (OnnxportError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise
        raise MachineError(
            f"the step {stage.name!r} of the plugin {stage.provider} failed",
            why=one_line(error),
            fix="report it to its authors, with the model",
        ) from error

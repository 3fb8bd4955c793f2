"""Stages and targets that other distributions bring: found by their entry points, imported when a pipeline names one.

The standard library only at import, so that `onnxport doctor` lists them where everything else is missing.
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

from onnxport.core import plugins
from onnxport.core.errors import MachineError, OnnxportError
from onnxport.core.plugins import GROUPS, Kind, Plugin, quiet, said, unusable

if TYPE_CHECKING:
    from onnxport.formats.model import Model
    from onnxport.pipelines.stages import Product, Stage, Work, Worker

# What these names mean in a pipeline or a report is settled; onnx is the target that only hands out, export no stage.
RESERVED = frozenset(("optimize", "quantize", "tflite", "coreml", "ort", "onnx", "export"))
# Of these the machine is guilty, whoever met with them.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def find(kind: Kind, name: str) -> Stage | None:
    """The plugin's stage of that name; None where nobody brings one.

    Raises:
        MissingDependencyError: two claim the name, or the one that has it cannot be used.
    """
    plugin = plugins.named(kind, name, RESERVED)
    return None if plugin is None else load(plugin)


@functools.cache
def load(plugin: Plugin) -> Stage:
    """Imports a plugin's stage and holds it to the contract.

    Raises:
        MissingDependencyError: it fails to import, or gives what is no stage for its place.
    """
    from onnxport.pipelines.stages import Provider

    stage = plugins.imported(plugin)
    if fault := _fault(plugin, stage):
        raise unusable(plugin, fault)
    modules = (plugin.module, stage.params.__module__, stage.worker.partition(":")[0])
    try:
        provider = Provider(plugin.distribution, plugin.version, modules, source_digest(modules))
    except (ImportError, OSError) as error:
        raise unusable(plugin, f"its code cannot be read: {said(error)}") from error
    found: Stage = replace(
        stage, libraries=(*dict.fromkeys((*stage.libraries, plugin.distribution)),), provider=provider
    )
    return found


def _fault(plugin: Plugin, stage: Any) -> str:
    """What keeps `stage` from being one; empty for nothing."""
    from pydantic import BaseModel

    from onnxport.formats.artifact import SUFFIXES
    from onnxport.pipelines.stages import Stage

    what = plugin.place
    if not isinstance(stage, Stage):
        return (
            f"{what} is of type {type(stage).__name__}, where a Stage of onnxport.pipelines.stages has to be"
        )
    if stage.name != plugin.name:
        return f"{what} is called {stage.name!r} and its entry point {plugin.name!r}; the two have to be the same"
    if not isinstance(stage.params, type) or not issubclass(stage.params, BaseModel):
        return f"the params of {what} are no pydantic model"
    if getattr(sys.modules.get(stage.params.__module__), stage.params.__qualname__, None) is not stage.params:
        return (
            f"the params of {what} cannot be imported by their name; define the class at a module's top level"
        )
    if taken := _keys(plugin.kind) & stage.params.model_fields.keys():
        return f"{what} has the option {min(taken)!r}, which every {plugin.kind} of a pipeline has already"
    if stage.takes != "onnx":
        return f"{what} takes {stage.takes!r}; a stage takes onnx"
    if plugin.kind == "stage" and stage.gives != "onnx":
        return f"{what} gives {stage.gives!r}; what does not give onnx is a target, of the group {GROUPS['target']}"
    if stage.gives not in SUFFIXES:
        return f"{what} gives {stage.gives!r}; formats that can be proven are {', '.join(SUFFIXES)}"
    if not isinstance(stage.libraries, tuple) or not all(isinstance(each, str) for each in stage.libraries):
        return f"the libraries of {what} are no tuple of names of distributions"
    if not isinstance(stage.worker, str) or not all(stage.worker.partition(":")):
        return f"the worker of {what} is {stage.worker!r}; write module:function"
    return ""


def _keys(kind: Kind) -> set[str]:
    """What a pipeline.yaml says of every stage or target, beside its options."""
    from onnxport.pipelines.config.schema import StageSpec, TargetSpec

    fields = (StageSpec if kind == "stage" else TargetSpec).model_fields
    return {field.alias or name for name, field in fields.items()}


def source_digest(modules: tuple[str, ...]) -> str:
    """SHA-256 of the files of the packages that `modules` are in, or of modules that are in none.

    Raises:
        ImportError: there is no such module.
    """
    tree = hashlib.sha256()
    for name in sorted({_home(module) for module in modules}):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(f"no module named {name!r}")
        folder = Path(spec.origin).parent
        files = sorted(folder.rglob("*")) if spec.submodule_search_locations else [Path(spec.origin)]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                content = hashlib.sha256(file.read_bytes()).digest()
                tree.update(f"{name}/{file.relative_to(folder).as_posix()}\0".encode() + content)
    return tree.hexdigest()


def _home(module: str) -> str:
    """The outermost package of a module that is no namespace, which others share."""
    parts = module.split(".")
    for count in range(1, len(parts)):
        name = ".".join(parts[:count])
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            return name
    return module


@contextlib.contextmanager
def guard_worker(stage: Stage) -> Iterator[Worker]:
    """A plugin's worker, whose failures are told as the plugin's and whose product is looked at.

    Raises:
        MachineError: it raised what is no error of ours, or gave no product.
    """
    with contextlib.ExitStack() as stack:
        with _blame_plugin(stage):
            worker = stack.enter_context(stage.started())

        def make(model: Model, params: Any, work: Work) -> Product:
            with _blame_plugin(stage):
                return _check_product(worker(model, params, work), stage, work)

        yield make


def _check_product(product: Any, stage: Stage, work: Work) -> Product:
    """Raises TypeError for what is no product of `stage`."""
    from onnxport.pipelines.stages import Product

    if not isinstance(product, Product):
        raise TypeError(f"its worker gave {type(product).__name__}, where a Product has to be")
    artifact = product.artifact
    if artifact.format != stage.gives or artifact.path != work.output or not artifact.path.exists():
        raise TypeError(f"its worker left no {stage.gives} model at work.output")
    return product


@contextlib.contextmanager
def _blame_plugin(stage: Stage) -> Iterator[None]:
    try:
        with quiet():
            yield
    except (OnnxportError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise
        raise MachineError(
            f"the step {stage.name!r} of the plugin {stage.provider} failed",
            why=said(error),
            fix="tell its authors, with the model",
        ) from error

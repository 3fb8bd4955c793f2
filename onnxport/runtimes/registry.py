"""The registry of runtimes: the table KINDS, and plugins.

A plugin is an entry point of the group `onnxport.runtimes` that names a `Kind` (docs/guide/runtimes.md). Only the
standard library is imported here, so that a wrong name is refused before any runtime is imported.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from onnxport.core import plugins
from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.core.plugins import Plugin
from onnxport.formats.artifact import SUFFIXES, Format
from onnxport.runtimes.options import AUTO

if TYPE_CHECKING:
    from onnxport.runtimes.base import Runtime


@dataclass(frozen=True)
class Kind:
    """One runtime."""

    name: str  # the value of `--candidate-runtime runtime=` and `bench --runtimes`
    title: str  # the runtime's own name, for messages
    formats: tuple[str, ...]  # the formats that it runs (`onnxport.formats.artifact.Format`)
    # "module:callable"; takes the model's path and `RuntimeOptions`, returns a `Runtime`, or raises
    # InputError for a file that it cannot load.
    factory: str
    # The distributions that it needs, by their names in the package index.
    distributions: tuple[str, ...] = ()
    # The names that `--candidate-runtime` accepts: fields of `RuntimeOptions`; any other name is passed in
    # `RuntimeOptions.own` as text.
    settings: tuple[str, ...] = ()
    extra: str = ""  # the extra of onnxport that installs the distributions; empty for none
    system: str = ""  # the `sys.platform` where it is the default; empty for all
    # "module:callable"; returns what it lacks beside distributions, in words for `doctor`; empty for nothing to ask.
    probe: str = ""

    @property
    def lacking(self) -> tuple[str, ...]:
        """The distributions that are not installed; imports none."""
        return tuple(name for name in self.distributions if not is_installed(name))

    @property
    def module(self) -> str:
        """The module of the factory."""
        return self.factory.partition(":")[0]

    def ask_probe(self) -> str:
        """Return what it lacks beside distributions; empty where these are missing already."""
        if not self.probe or self.lacking:
            return ""
        module, _, name = self.probe.partition(":")
        return str(getattr(importlib.import_module(module), name)())

    def check(self) -> None:
        """Raise MissingDependencyError, with the pip command, where a distribution is not installed."""
        if self.lacking:
            package = f"'onnxport[{self.extra}]'" if self.extra else " ".join(self.lacking)
            raise MissingDependencyError(
                f"{self.title} needs {', '.join(self.lacking)}, which is not installed",
                fix=f"run: {sys.executable} -m pip install {package}",
            )

    def load(self) -> Callable[..., Runtime]:
        """Import and return the factory; raises MissingDependencyError where that fails."""
        self.check()
        try:
            factory = getattr(importlib.import_module(self.module), self.factory.partition(":")[2])
        except (ImportError, AttributeError) as error:
            raise MissingDependencyError(
                f"{self.title} cannot be imported",
                why=str(error),
                fix="run onnxport doctor to see what is missing",
            ) from error
        return cast("Callable[..., Runtime]", factory)


_ENGINES = "onnxport.runtimes.engines"
# In the order in which messages list them; the first of a format is its default.
KINDS = (
    Kind(
        "ort",
        "ONNX Runtime",
        ("onnx", "ort"),
        "onnxport.runtimes.ort.runtime:OrtRuntime",
        settings=("integers", "level", "provider", "threads"),
    ),
    Kind(
        "litert",
        "LiteRT",
        ("tflite",),
        "onnxport.runtimes.litert:TfliteRuntime",
        ("ai-edge-litert",),
        settings=("delegate", "threads"),
    ),
    Kind(
        "litert-gpu",
        "LiteRT's GPU runtime",
        ("tflite",),
        "onnxport.runtimes.litert_gpu:TfliteGpuRuntime",
        ("ai-edge-litert",),
        settings=("vulkan",),
        probe="onnxport.runtimes.vulkan:lacking",
    ),
    Kind(
        "predict",
        "Core ML",
        ("coreml",),
        "onnxport.runtimes.coreml:CoremlRuntime",
        ("coremltools",),
        settings=("function", "units"),
        system="darwin",
    ),
    Kind(
        "evaluator",
        "the evaluator of ML programs",
        ("coreml",),
        "onnxport.runtimes.mlprogram:MilRuntime",
        ("coremltools",),
        settings=("function", "units"),
    ),
    Kind(
        "ort-webgpu",
        "ONNX Runtime's WebGPU provider",
        ("onnx", "ort"),
        "onnxport.runtimes.ort.webgpu:WebgpuRuntime",
        ("onnxruntime-ep-webgpu",),
        settings=("level", "threads", "vulkan"),
        extra="webgpu",
        probe="onnxport.runtimes.vulkan:lacking",
    ),
    Kind("tract", "tract", ("onnx",), f"{_ENGINES}.tract:TractRuntime", ("tract",), extra="tract"),
    Kind(
        "openvino",
        "OpenVINO",
        ("onnx",),
        f"{_ENGINES}.openvino:OpenvinoRuntime",
        ("openvino",),
        ("threads",),
        "openvino",
    ),
    Kind("ncnn", "ncnn", ("onnx",), f"{_ENGINES}.ncnn:NcnnRuntime", ("ncnn", "pnnx"), ("threads",), "ncnn"),
    Kind("mnn", "MNN", ("onnx",), f"{_ENGINES}.mnn:MnnRuntime", ("MNN",), ("threads", "winograd"), "mnn"),
)
# Format -> the first of KINDS that runs it, on whatever system.
FIRST: Mapping[str, Kind] = {format_: kind for kind in reversed(KINDS) for format_ in kind.formats}
RESERVED = frozenset((AUTO, *(kind.name for kind in KINDS)))


def runtime_names(format_: Format) -> tuple[str, ...]:
    """Return the names of the runtimes for a format, and of all plugins, whose formats are unknown until imported."""
    built_in = (kind.name for kind in KINDS if format_ in kind.formats)
    return tuple(dict.fromkeys((*built_in, *(plugin.name for plugin in plugins.installed("runtime")))))


def find_runtime(format_: Format, name: str = AUTO, option: str = "runtime") -> Kind:
    """Return the runtime of that name for files of a format; messages name `option`.

    Raises:
        UsageError: no runtime has the name, or it runs other formats.
        MissingDependencyError: two plugins have the name, or the plugin cannot be used.
    """
    if name == AUTO:
        return next(kind for kind in KINDS if format_ in kind.formats and kind.system in ("", sys.platform))
    kind = find(name)
    if kind is None or (kind in KINDS and format_ not in kind.formats):
        known = ", ".join((AUTO, *runtime_names(format_)))
        raise UsageError(f"{option}: {name!r} is not allowed for runtime", fix=f"give {known}")
    if format_ not in kind.formats:
        runs = ", ".join(SUFFIXES[each] for each in SUFFIXES if each in kind.formats)
        raise UsageError(f"{option}: {kind.title} runs no {SUFFIXES[format_]} files, it runs {runs}")
    return kind


def find(name: str) -> Kind | None:
    """Return the runtime of that name, for any format, or None; MissingDependencyError for an unusable plugin."""
    plugin = plugins.find("runtime", name, RESERVED)
    if plugin is not None:
        return _load_plugin(plugin)
    return next((kind for kind in KINDS if kind.name == name), None)


def distributions(name: str) -> tuple[str, ...]:
    """Return the distributions of a runtime, whose versions a report lists; () for an unknown name."""
    kind = find(name)
    return () if kind is None else kind.distributions


@functools.cache
def _load_plugin(plugin: Plugin) -> Kind:
    """Import a plugin's kind and check it against the contract (MissingDependencyError)."""
    kind = plugins.load(plugin)
    if fault := _find_fault(plugin, kind):
        raise plugins.unusable(plugin, f"{plugin.place} {fault}")
    assert isinstance(kind, Kind)
    return replace(kind, distributions=tuple(dict.fromkeys((*kind.distributions, plugin.distribution))))


def _find_fault(plugin: Plugin, kind: Any) -> str:
    """Return how `kind` breaks the contract; empty where it does not."""
    if not isinstance(kind, Kind):
        return f"is of type {type(kind).__name__}, not a Kind of onnxport.runtimes.registry"
    if kind.name != plugin.name:
        return f"has the name {kind.name!r}, its entry point {plugin.name!r}; give both the same name"
    for field in ("formats", "distributions", "settings"):
        value = getattr(kind, field)
        if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
            return f"has {field} that are not a tuple of strings"
    if not kind.formats or not set(kind.formats) <= SUFFIXES.keys():
        return f"runs the formats {list(kind.formats)}; known are {', '.join(SUFFIXES)}"
    if not isinstance(kind.factory, str) or not all(kind.factory.partition(":")):
        return f"has the factory {kind.factory!r}; write module:callable"
    return ""


def is_installed(distribution: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True

"""Which runtimes there are: a table of ours, and what other distributions add to it.

A plugin is an entry point of the group `onnxport.runtimes` that names a `Kind` of its own (docs/runtimes.md). The
standard library only, so that a wrong name is refused before any library is imported.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from onnxport.core import plugins
from onnxport.core.errors import MissingDependencyError, UsageError
from onnxport.core.plugins import Plugin
from onnxport.formats.artifact import SUFFIXES, Format
from onnxport.runtimes.options import AUTO

if TYPE_CHECKING:
    from onnxport.runtimes.base import Runtime


@dataclass(frozen=True)
class Kind:
    """One runtime.

    Attributes:
        name: its word in `--candidate-runtime runtime=` and `bench --runtimes`.
        title: what it calls itself, for messages.
        formats: of the files that it runs, as `onnxport.formats.artifact.Format` has them.
        factory: "module:callable"; called with the model's path and `RuntimeOptions`, it gives a `Runtime`, or raises
            InputError of a file that it does not load.
        distributions: that have to be installed, by their names in the package index.
        settings: what `--candidate-runtime` may say of it: names of `RuntimeOptions`; any other is handed over in
            `RuntimeOptions.own` as text.
        extra: of onnxport, that brings the distributions; empty for none.
        system: the `sys.platform` where it is what answers unless another is asked for; empty for all.
    """

    name: str
    title: str
    formats: tuple[str, ...]
    factory: str
    distributions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    extra: str = ""
    system: str = ""

    @property
    def lacking(self) -> tuple[str, ...]:
        """The distributions that are not installed; told without importing one."""
        return tuple(name for name in self.distributions if not _is_installed(name))

    def check(self) -> None:
        """Raises MissingDependencyError, with the line that mends it, where one is not installed."""
        if self.lacking:
            what = f"'onnxport[{self.extra}]'" if self.extra else " ".join(self.lacking)
            raise MissingDependencyError(
                f"{self.title} needs {', '.join(self.lacking)}, which is not installed",
                fix=f"run: {sys.executable} -m pip install {what}",
            )

    def load(self) -> Callable[..., Runtime]:
        """The factory.

        Raises:
            MissingDependencyError: it cannot be imported.
        """
        self.check()
        module, _, name = self.factory.partition(":")
        try:
            return _attribute(module, name)
        except (ImportError, AttributeError) as error:
            raise MissingDependencyError(
                f"{self.title} cannot be imported",
                why=str(error),
                fix="`onnxport doctor` says what is missing",
            ) from error


_FOREIGN = "onnxport.runtimes.engines"
# In the order in which they are offered; the first of a format is what runs it unless another is asked for.
KINDS = (
    Kind(
        "ort",
        "ONNX Runtime",
        ("onnx", "ort"),
        "onnxport.runtimes.ort.session:OrtRuntime",
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
    Kind("tract", "tract", ("onnx",), f"{_FOREIGN}.tract:TractRuntime", ("tract",), extra="tract"),
    Kind(
        "openvino",
        "OpenVINO",
        ("onnx",),
        f"{_FOREIGN}.openvino:OpenvinoRuntime",
        ("openvino",),
        ("threads",),
        "openvino",
    ),
    Kind("ncnn", "ncnn", ("onnx",), f"{_FOREIGN}.ncnn:NcnnRuntime", ("ncnn", "pnnx"), ("threads",), "ncnn"),
    Kind("mnn", "MNN", ("onnx",), f"{_FOREIGN}.mnn:MnnRuntime", ("MNN",), ("threads", "winograd"), "mnn"),
)
RESERVED = frozenset((AUTO, *(kind.name for kind in KINDS)))


def names(format_: Format) -> tuple[str, ...]:
    """Every name that `runtime` may have for files of a format, those of plugins too, which are not imported: whether
    one runs this format is known when it is named."""
    ours = (kind.name for kind in KINDS if format_ in kind.formats)
    return tuple(dict.fromkeys((*ours, *(plugin.name for plugin in plugins.installed("runtime")))))


def find_runtime(format_: Format, name: str = AUTO, option: str = "runtime") -> Kind:
    """The runtime of that name for files of a format.

    Args:
        option: how the user says it, for messages.

    Raises:
        UsageError: there is none of that name, or it runs other files.
        MissingDependencyError: two claim the name, or the one that has it cannot be used.
    """
    if name == AUTO:
        return next(kind for kind in KINDS if format_ in kind.formats and kind.system in ("", sys.platform))
    kind = named(name)
    if kind is None or (kind in KINDS and format_ not in kind.formats):
        known = ", ".join((AUTO, *names(format_)))
        raise UsageError(f"{option}: runtime has the value {name!r}", fix=f"give {known}")
    if format_ not in kind.formats:
        runs = ", ".join(SUFFIXES[each] for each in SUFFIXES if each in kind.formats)
        raise UsageError(f"{option}: {kind.title} runs no {SUFFIXES[format_]} files, it runs {runs}")
    return kind


def named(name: str) -> Kind | None:
    """The runtime of that name, whatever it runs; None where there is none.

    Raises:
        MissingDependencyError: two claim the name, or the plugin that has it cannot be used.
    """
    plugin = plugins.named("runtime", name, RESERVED)
    if plugin is not None:
        return _brought(plugin)
    return next((kind for kind in KINDS if kind.name == name), None)


def distributions(name: str) -> tuple[str, ...]:
    """Of the runtime of that name, whose versions a report tells; none of one that there is not."""
    kind = named(name)
    return () if kind is None else kind.distributions


@functools.cache
def _brought(plugin: Plugin) -> Kind:
    """Imports a plugin's kind and holds it to the contract.

    Raises:
        MissingDependencyError: it fails to import, or is no Kind that can be used.
    """
    kind = plugins.imported(plugin)
    if fault := _fault(plugin, kind):
        raise plugins.unusable(plugin, f"{plugin.place} {fault}")
    found: Kind = kind
    return replace(found, distributions=(*dict.fromkeys((*found.distributions, plugin.distribution)),))


def _fault(plugin: Plugin, kind: Any) -> str:
    """What keeps `kind` from being one; empty for nothing."""
    if not isinstance(kind, Kind):
        return f"is of type {type(kind).__name__}, where a Kind of onnxport.runtimes.registry has to be"
    if kind.name != plugin.name:
        return f"is called {kind.name!r} and its entry point {plugin.name!r}; the two have to be the same"
    for field in ("formats", "distributions", "settings"):
        value = getattr(kind, field)
        if not isinstance(value, tuple) or not all(isinstance(each, str) for each in value):
            return f"has {field} that are no tuple of texts"
    if not kind.formats or not set(kind.formats) <= SUFFIXES.keys():
        return f"runs files of the formats {list(kind.formats)}; known are {', '.join(SUFFIXES)}"
    if not isinstance(kind.factory, str) or not all(kind.factory.partition(":")):
        return f"has the factory {kind.factory!r}; write module:callable"
    return ""


def _attribute(module: str, name: str) -> Callable[..., Runtime]:
    found: Callable[..., Runtime] = getattr(importlib.import_module(module), name)
    return found


def _is_installed(distribution: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True

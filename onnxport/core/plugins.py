"""Plugins of other distributions: found by their entry points, imported when they are named.

Imports the standard library only, so that `onnxport doctor` lists them where everything else is missing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from onnxport.core.errors import MissingDependencyError

Kind = Literal["stage", "target", "runtime"]
GROUPS: dict[Kind, str] = {
    "stage": "onnxport.stages",
    "target": "onnxport.targets",
    "runtime": "onnxport.runtimes",
}


@dataclass(frozen=True)
class Plugin:
    """An entry point, not imported."""

    kind: Kind
    name: str
    place: str  # its object, as "module:object"
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]

    @property
    def removal(self) -> str:
        """The command that uninstalls it."""
        return f"{sys.executable} -m pip uninstall {self.distribution}"


def installed(kind: Kind) -> tuple[Plugin, ...]:
    """Return the plugins of a kind, sorted by name."""
    return _search(tuple(sys.path))[kind]


@functools.cache
def _search(places: tuple[str, ...]) -> dict[Kind, tuple[Plugin, ...]]:
    """Search the entry points of all distributions once, which takes as long for one group; cached by sys.path."""
    from importlib.metadata import entry_points

    points = entry_points()

    def found(kind: Kind) -> tuple[Plugin, ...]:
        plugins = (
            Plugin(kind, point.name, point.value, point.dist.name, point.dist.version)
            for point in points.select(group=GROUPS[kind])
            if point.dist is not None
        )
        return tuple(sorted(plugins, key=lambda plugin: (plugin.name, plugin.distribution)))

    return {kind: found(kind) for kind in GROUPS}


def claimants(plugin: Plugin, reserved: Collection[str]) -> tuple[str, ...]:
    """Return the other distributions with its name, with versions; onnxport itself has the `reserved` names."""
    own = ("onnxport",) if plugin.name in reserved else ()
    others = (str(each) for each in installed(plugin.kind) if each != plugin and each.name == plugin.name)
    return (*own, *others)


def find(kind: Kind, name: str, reserved: Collection[str]) -> Plugin | None:
    """Return the plugin of that name, or None. Raises MissingDependencyError: two plugins have the name."""
    plugin = next((each for each in installed(kind) if each.name == name), None)
    if plugin is not None and (others := claimants(plugin, reserved)):
        raise MissingDependencyError(
            f"the {kind} {name!r} is ambiguous",
            why=f"{' and '.join((str(plugin), *others))} define it",
            fix=f"uninstall one of them: {plugin.removal}",
        )
    return plugin


def load(plugin: Plugin) -> Any:
    """Import and return the object of a plugin's entry point (MissingDependencyError)."""
    module, _, attribute = plugin.place.partition(":")
    try:
        with stdout_to_stderr():
            return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (Exception, SystemExit) as error:
        raise unusable(plugin, f"{plugin.place} cannot be imported: {one_line(error)}") from error


def unusable(plugin: Plugin, why: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"the plugin {plugin} cannot be used as {plugin.kind} {plugin.name!r}",
        why=why,
        fix=f"repair it, or uninstall it: {plugin.removal}",
    )


def stdout_to_stderr() -> contextlib.AbstractContextManager[Any]:
    """Send a plugin's output to stderr: our stdout may be a document."""
    return contextlib.redirect_stdout(sys.stderr)


def one_line(error: BaseException) -> str:
    """Return a plugin's error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__

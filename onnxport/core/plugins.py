"""What other distributions bring: found by their entry points, imported when it is named.

The standard library only at import, so that `onnxport doctor` lists it where everything else is missing.
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
    """An entry point, not imported.

    Attributes:
        place: what it names, as "module:object".
    """

    kind: Kind
    name: str
    place: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]

    @property
    def removal(self) -> str:
        """The line that uninstalls it."""
        return f"{sys.executable} -m pip uninstall {self.distribution}"


def installed(kind: Kind) -> tuple[Plugin, ...]:
    """The plugins of a kind, in the order of their names."""
    return _installed(kind, tuple(sys.path))


@functools.cache
def _installed(kind: Kind, places: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Looked for once, until there are other places to look in."""
    from importlib.metadata import entry_points

    found = (
        Plugin(kind, point.name, point.value, point.dist.name, point.dist.version)
        for point in entry_points(group=GROUPS[kind])
        if point.dist is not None
    )
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.distribution)))


def rivals(plugin: Plugin, reserved: Collection[str]) -> tuple[str, ...]:
    """Who else claims its name: distributions with versions, or onnxport itself, which has the `reserved` ones."""
    own = ("onnxport",) if plugin.name in reserved else ()
    others = (str(each) for each in installed(plugin.kind) if each != plugin and each.name == plugin.name)
    return (*own, *others)


def named(kind: Kind, name: str, reserved: Collection[str]) -> Plugin | None:
    """The plugin of that name; None where nobody brings one.

    Raises:
        MissingDependencyError: two claim the name.
    """
    plugin = next((each for each in installed(kind) if each.name == name), None)
    if plugin is not None and (others := rivals(plugin, reserved)):
        raise MissingDependencyError(
            f"the {kind} {name!r} is ambiguous",
            why=f"{' and '.join((str(plugin), *others))} bring one of that name",
            fix=f"remove what you do not need: {plugin.removal}",
        )
    return plugin


def imported(plugin: Plugin) -> Any:
    """The object that a plugin's entry point names.

    Raises:
        MissingDependencyError: it fails to import.
    """
    module, _, attribute = plugin.place.partition(":")
    try:
        with quiet():
            return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (Exception, SystemExit) as error:
        raise unusable(plugin, f"{plugin.place} cannot be imported: {said(error)}") from error


def unusable(plugin: Plugin, why: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"the plugin {plugin} cannot be used as {plugin.kind} {plugin.name!r}",
        why=why,
        fix=f"mend it, or remove it: {plugin.removal}",
    )


def quiet() -> contextlib.AbstractContextManager[Any]:
    """What a plugin prints is no part of our output, which may be a document."""
    return contextlib.redirect_stdout(sys.stderr)


def said(error: BaseException) -> str:
    """An error of a plugin in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__

"""`onnxport doctor`."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from onnxport.cli.commands import subcommand
from onnxport.cli.output import Output, output_options
from onnxport.core import plugins
from onnxport.core.confinement_check import find_gaps
from onnxport.core.errors import MISSING_DEPENDENCY, PROVEN
from onnxport.core.version import __version__
from onnxport.pipelines.environment import (
    LIBRARIES,
    SOURCES,
    TARGETS,
    Library,
    install_extras,
    is_core,
    missing,
)
from onnxport.pipelines.plugins import RESERVED as RESERVED_STAGES
from onnxport.runtimes.registry import KINDS, RESERVED


@subcommand("doctor", "onnxport doctor")
@output_options
def command(output: Output) -> int:
    found = _examine()
    output.result(lambda: json.dumps(found, indent=2), lambda: _text(found))
    return int(found["exit_code"])


def _examine() -> dict[str, Any]:
    lacking_core = [library for library in missing(LIBRARIES) if is_core(library)]
    return {
        "onnxport": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "libraries": [
            {name: getattr(library, name) for name in ("name", "version", "purpose", "extra")}
            for library in LIBRARIES.values()
        ],
        "targets": {name: _state(needs) for name, needs in TARGETS.items()},
        "sources": {name: _state(needs) for name, needs in SOURCES.items()},
        "runtimes": {kind.name: _state(kind.distributions, kind.system, kind.ask_probe()) for kind in KINDS},
        "plugins": [_plugin(each) for kind in plugins.GROUPS for each in plugins.installed(kind)],
        "confinement": find_gaps(),
        "remedies": _remedies(library for library in missing(LIBRARIES) if not library.extra),
        "extras": _remedies(library for library in missing(LIBRARIES) if library.extra),
        "exit_code": MISSING_DEPENDENCY if lacking_core else PROVEN,
    }


def _remedies(libraries: Iterable[Library]) -> list[str]:
    return list(dict.fromkeys(library.remedy for library in libraries))


_SYSTEMS = {"darwin": "macOS"}


def _state(needs: tuple[str, ...], system: str = "", unmet: str = "") -> dict[str, Any]:
    """Return whether something works here, and what it lacks; `system` is the only `sys.platform` where it works."""
    lacking = [library.name for library in missing(needs)]
    if unmet:
        lacking.append(unmet)
    if system not in ("", sys.platform):
        lacking.append(_SYSTEMS.get(system, system))
    return {"works": not lacking, "lacks": lacking}


def _plugin(plugin: plugins.Plugin) -> dict[str, Any]:
    """Describe a plugin without importing it."""
    reserved = RESERVED if plugin.kind == "runtime" else RESERVED_STAGES
    return {
        "name": plugin.name,
        "kind": plugin.kind,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "rivals": plugins.claimants(plugin, reserved),
    }


def _text(found: dict[str, Any]) -> str:
    lines = [
        f"onnxport {found['onnxport']}",
        f"Python {found['python']} at {found['executable']}",
        found["platform"],
    ]
    row = "  {name:<18} {version:<12} {purpose}"
    for title, is_wanted in (("libraries", False), ("optional frameworks and runtimes", True)):
        shown = (each for each in found["libraries"] if bool(each["extra"]) == is_wanted)
        lines += [
            "",
            title,
            *(row.format(**{**each, "version": each["version"] or "missing"}) for each in shown),
        ]
    for kind in ("targets", "sources", "runtimes"):
        lines += ["", kind, *(f"  {name:<18} {_in_words(state)}" for name, state in found[kind].items())]
    gaps = " and ".join(found["confinement"])
    lines += ["", "processes that read files of others"]
    lines += [f"  confined: {f'not, such a process {gaps} here' if gaps else _CONFINED}"]
    if found["plugins"]:
        lines += ["", "plugins"]
    for plugin in found["plugins"]:
        rivals = f", conflicts with that of {' and '.join(plugin['rivals'])}" if plugin["rivals"] else ""
        line = f"  {plugin['name']:<18} {plugin['kind']:<12} {plugin['distribution']} {plugin['version']}"
        lines.append(line + rivals)
    if found["remedies"]:
        lines += ["", "to install what is missing", *(f"  {remedy}" for remedy in found["remedies"])]
    if found["extras"]:
        lines += ["", "to install more frameworks and runtimes", *_extras(found["libraries"])]
    return "\n".join(lines)


def _extras(libraries: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what each missing extra is for, and the command that installs all of them."""
    purposes: dict[str, dict[str, None]] = {}
    for library in libraries:
        if library["extra"] and library["version"] is None:
            purposes.setdefault(library["extra"], {})[library["purpose"]] = None
    yield from (f"  {extra:<18} {', '.join(found)}" for extra, found in purposes.items())
    yield f"  {install_extras(*purposes)}"


_CONFINED = "they write to their own folders only and have no network"


def _in_words(state: dict[str, Any]) -> str:
    return "works" if state["works"] else f"does not work here: it needs {', '.join(state['lacks'])}"

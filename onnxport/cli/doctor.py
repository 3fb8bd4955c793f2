"""`onnxport doctor`."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from onnxport.cli.commands import subcommand
from onnxport.cli.output import Output, output_options
from onnxport.core import plugins
from onnxport.core.errors import MISSING_DEPENDENCY, PROVEN
from onnxport.core.version import __version__
from onnxport.pipelines.environment import LIBRARIES, SOURCES, TARGETS, Library, is_core, missing
from onnxport.pipelines.plugins import RESERVED as RESERVED_STAGES
from onnxport.runtimes.registry import KINDS, RESERVED


@subcommand("doctor", "onnxport doctor")
@output_options
def command(output: Output) -> int:
    found = _examined()
    output.result(lambda: json.dumps(found, indent=2), lambda: _text(found))
    return int(found["exit_code"])


def _examined() -> dict[str, Any]:
    """The whole diagnosis, as its JSON document."""
    lacking_core = [library for library in missing(LIBRARIES) if is_core(library)]
    return {
        "onnxport": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "libraries": [
            {
                "name": library.name,
                "version": library.version,
                "purpose": library.purpose,
                "extra": library.extra,
            }
            for library in LIBRARIES.values()
        ],
        "targets": {name: _state(needs) for name, needs in TARGETS.items()},
        "sources": {name: _state(needs) for name, needs in SOURCES.items()},
        "runtimes": {kind.name: _state(kind.distributions) for kind in KINDS},
        "plugins": [_plugin(each) for kind in plugins.GROUPS for each in plugins.installed(kind)],
        "remedies": _remedies(library for library in missing(LIBRARIES) if not library.extra),
        "extras": _remedies(library for library in missing(LIBRARIES) if library.extra),
        "exit_code": MISSING_DEPENDENCY if lacking_core else PROVEN,
    }


def _remedies(libraries: Iterable[Library]) -> list[str]:
    """What would bring them, each line once."""
    return list(dict.fromkeys(library.remedy for library in libraries))


def _state(needs: tuple[str, ...]) -> dict[str, Any]:
    lacking = [library.name for library in missing(needs)]
    return {"works": not lacking, "lacks": lacking}


def _plugin(plugin: plugins.Plugin) -> dict[str, Any]:
    """Who brings what, not imported: whether it works is known when it is named."""
    reserved = RESERVED if plugin.kind == "runtime" else RESERVED_STAGES
    return {
        "name": plugin.name,
        "kind": plugin.kind,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "rivals": plugins.rivals(plugin, reserved),
    }


def _text(found: dict[str, Any]) -> str:
    lines = [
        f"onnxport {found['onnxport']}",
        f"Python {found['python']} at {found['executable']}",
        found["platform"],
    ]
    for title, is_wanted in (
        ("libraries", False),
        ("frameworks and runtimes of others, each optional", True),
    ):
        lines += ["", title, *(_row(each) for each in found["libraries"] if bool(each["extra"]) == is_wanted)]
    for kind in ("targets", "sources", "runtimes"):
        lines += ["", kind, *(f"  {name:<18} {_said(state)}" for name, state in found[kind].items())]
    if found["plugins"]:
        lines += ["", "plugins", *map(_brought, found["plugins"])]
    if found["remedies"]:
        lines += ["", "to mend what is missing", *(f"  {remedy}" for remedy in found["remedies"])]
    if found["extras"]:
        lines += [
            "",
            "to export from or run in more of them",
            *(f"  {remedy}" for remedy in found["extras"]),
        ]
    return "\n".join(lines)


def _row(library: Mapping[str, Any]) -> str:
    return f"  {library['name']:<18} {library['version'] or 'missing':<12} {library['purpose']}"


def _said(state: dict[str, Any]) -> str:
    return "works" if state["works"] else f"does not work here, it lacks {', '.join(state['lacks'])}"


def _brought(plugin: Mapping[str, Any]) -> str:
    line = f"  {plugin['name']:<18} {plugin['kind']:<12} {plugin['distribution']} {plugin['version']}"
    return (
        f"{line}, cannot be used beside that of {' and '.join(plugin['rivals'])}"
        if plugin["rivals"]
        else line
    )

"""The benchmark tools of runtimes: a module each, and the binaries that the user gives."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxport.bench.devices.tools.base import Tool
from onnxport.bench.devices.tools.benchmark_model import BenchmarkModel
from onnxport.bench.devices.tools.perf_test import PerfTest
from onnxport.core.errors import InputError, UsageError
from onnxport.core.missing_paths import missing_path

TOOLS: tuple[Tool, ...] = (BenchmarkModel(), PerfTest())


@dataclass(frozen=True)
class Binary:
    """A tool for the device: its file, and all files of its folder where libraries lie beside it."""

    tool: Tool
    file: Path
    beside: tuple[Path, ...]

    @property
    def digest(self) -> str:
        """The start of the file's SHA-256, which tells builds apart."""
        with self.file.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def find_binaries(given: Sequence[str]) -> Mapping[str, Binary]:
    """Return the binaries of `--device-binary`, by their runtime.

    Each is a file, or a folder with a tool and its libraries; the file's name tells the tool, or RUNTIME= before it.

    Raises:
        UsageError: no tool has this name, or two are of the same runtime.
        InputError: there is no such file.
    """
    found: dict[str, Binary] = {}
    for each in given:
        binary = _binary(each)
        if binary.tool.runtime in found:
            raise UsageError(f"--device-binary: {each} is a second tool of {binary.tool.runtime}")
        found[binary.tool.runtime] = binary
    return found


def _binary(given: str) -> Binary:
    runtime, _, rest = given.partition("=")
    named = next((tool for tool in TOOLS if tool.runtime == runtime and rest), None)
    path = Path(rest if named else given)
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.is_file())
        mains = [each for each in files if _tool_of(each)]
        if len(mains) == 1:
            return Binary(named or _known(mains[0]), mains[0], tuple(files))
        raise InputError(f"{path} has {len(mains)} benchmark tools", fix=f"a folder has one of {_names()}")
    if not path.is_file():
        raise missing_path(
            path, what=f"--device-binary: {path} does not exist", fix=f"give a build of {_names()}"
        )
    return Binary(named or _known(path), path, (path,))


def _tool_of(path: Path) -> Tool | None:
    return next((tool for tool in TOOLS if tool.word in path.name), None)


def _known(path: Path) -> Tool:
    tool = _tool_of(path)
    if tool is None:
        prefixes = " or ".join(f"{each.runtime}={path}" for each in TOOLS)
        raise UsageError(f"--device-binary: {path} has no name of a tool", fix=f"give {prefixes}")
    return tool


def _names() -> str:
    return " or ".join(tool.name for tool in TOOLS)

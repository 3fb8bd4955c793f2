"""Finds changes of user code, and of the files and libraries that it used, since it made a product."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from onnxport.core.user_modules import found_module
from onnxport.pipelines.graph.digests import sha256
from onnxport.reports.run_report import ConsultedRecord


def find_change(then: ConsultedRecord | None) -> str:
    """Describe the first change since `then`; empty if there is none."""
    if then is None:
        return ""
    for name, digest in then.modules.items():
        if _digest(found_module(name)) != digest:
            return f"the module {name} changed"
    for name, digest in then.files.items():
        if _digest(Path(name)) != digest:
            return f"{name}, which the model's code reads, changed"
    for name, version in then.libraries.items():
        if (now := _version(name)) != version:
            return f"{name} {version} is {now or 'gone'}"
    return ""


def _digest(file: Path | None) -> str | None:
    try:
        return None if file is None else sha256(file).hex()
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

"""What the product of a node follows from, as a value that one can print, and its digest: the key of the cache.

In it are the contents of every file that is read, the options, and the versions of what computes. Not in it are what
changes no result (how many processes, how long to wait) and the machine's CPU: what was proven elsewhere is proven.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import onnxport
from onnxport.errors import InputError
from onnxport.pipelines.environment import RUNS_ON, SOURCES, versions
from onnxport.pipelines.spec.pipeline import Node

_FORM = 1
# Options on which no result depends.
_NO_MATTER = frozenset(("timeout", "jobs", "memory_limit", "cache", "scheduler", "report_tensors", "onnx2tf"))

Inputs = dict[str, Any]


def inputs_of(node: Node, origin: str, made: tuple[str, ...]) -> Inputs:
    """All that the product of `node` follows from.

    Args:
        origin: digest of the model that proofs refer to.
        made: digests of the products of the nodes before, from the model on.
    """
    return {
        "form": _FORM,
        "source": origin,
        "before": [
            {**_step(each), "digest": digest} for each, digest in zip(node.chain[:-1], made, strict=True)
        ],
        **_step(node),
        "proof": None if node.validation is None else described(node.validation),
        "latency": node.latency,
        "versions": versions(_libraries(node))
        | {"onnxport": onnxport.__version__, "sources": _own_sources()},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def key_of(inputs: Inputs) -> str:
    """The digest of what `inputs_of` gave."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def described(params: BaseModel) -> dict[str, Any]:
    """Params as a value that is the same wherever the files lie that they name."""
    dumped = params.model_dump(mode="json")
    found = {}
    for name in type(params).model_fields:
        if name not in _NO_MATTER:
            value = getattr(params, name)
            paths = _contents(value)
            found[name] = dumped.get(name) if paths is None else paths
    return found


def _step(node: Node) -> dict[str, Any]:
    params = node.model.export if node.step is None else node.step.params
    assert params is not None
    found = {"stage": node.stage, "params": described(params)}
    provider = node.step.stage.provider if node.step is not None else None
    return found if provider is None else {**found, "plugin": provider.sources}


def _libraries(node: Node) -> set[str]:
    if node.step is None:
        kind = node.model.origin.format
        return {*SOURCES.get(kind, ()), *RUNS_ON["onnx"]}
    return {"numpy", "onnxruntime", *node.step.stage.libraries, *RUNS_ON[node.step.stage.gives]}


def _contents(value: Any) -> Any:
    """The digests of the files that `value` names; None where it names none."""
    if isinstance(value, Path):
        return content(value)
    if isinstance(value, Mapping) and any(isinstance(each, Path) for each in value.values()):
        return {key: content(each) for key, each in value.items()}
    return None


def content(path: Path) -> str:
    """SHA-256 of a file, or of all files in a folder with their names.

    Raises:
        InputError: there is nothing at `path`, or it cannot be read.
    """
    try:
        if path.is_dir():
            tree = hashlib.sha256()
            for file in sorted(each for each in path.rglob("*") if each.is_file()):
                tree.update(file.relative_to(path).as_posix().encode() + b"\0" + _digest(file))
            return tree.hexdigest()
        return _digest(path).hex()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def _digest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


@lru_cache(maxsize=1)
def _own_sources() -> str:
    """Of this package: between two releases it changes, too."""
    home = Path(onnxport.__file__).parent
    tree = hashlib.sha256()
    for file in sorted(home.rglob("*.py")):
        tree.update(file.relative_to(home).as_posix().encode() + b"\0" + file.read_bytes())
    return tree.hexdigest()[:16]

"""Cache keys: all that the product of a node depends on, as a printable value, and its digest.

A key has the contents of every file read, the options, and the versions of the libraries that compute. It leaves out
options that change no result (processes, timeouts) and the CPU, unless the stage writes for it. User code is not known
before it ran; see digests.find_change.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from onnxport.converters.params import TfliteParams
from onnxport.core import reads
from onnxport.core.errors import MissingDependencyError
from onnxport.core.version import __version__
from onnxport.exporters.params import ExportParams
from onnxport.optimizers.params import OptimizeParams
from onnxport.pipelines.config.pipeline import Node
from onnxport.pipelines.environment import RUNS_ON, SOURCES, instruction_sets, library, runtime_libraries
from onnxport.pipelines.graph import digests
from onnxport.pipelines.runner.provenance import irrelevant_options
from onnxport.runtimes.custom_libraries import libraries
from onnxport.samples.folders import AUDIO, IMAGES, holds_suffix

_FORM = 2
# Libraries of every stage and every proof; a test compares the list with their imports.
_COMPUTES = (
    *("numpy", "ml_dtypes", "onnx", "onnx-ir", "onnxruntime", "protobuf", "flatbuffers"),
    *("safetensors", "PyYAML"),
)
# Read images, and resample audio; irrelevant to other samples.
_READERS = {"pillow": IMAGES, "scipy": frozenset({AUDIO})}

Inputs = dict[str, Any]


def inputs_of(node: Node, origin: str, made: tuple[str, ...]) -> Inputs:
    """Return all that the product of `node` depends on; InputError if a file of an option is missing or unreadable.

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
        "proof": None if node.validation is None else describe_params(node.validation),
        "latency": node.latency,
        "versions": _versions(node),
        **_custom_operators(),
        # A patch release of Python changes no result.
        **machine(),
    }


def _custom_operators() -> dict[str, Any]:
    """Return the user's libraries of operators, with which ONNX Runtime answers; their order is that of loading."""
    found = [digests.describe(library) for library in libraries()]
    return {"custom operators": found} if found else {}


def machine() -> dict[str, str]:
    """Return what products depend on beside libraries."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def key_of(inputs: Inputs) -> str:
    """Return the digest of `inputs_of`."""
    return digests.digest_of_value(inputs)


def describe_params(params: BaseModel) -> dict[str, Any]:
    """Return params as a value that does not depend on where their files lie."""
    left_out = irrelevant_options(type(params))
    return {
        name: _plain_value(getattr(params, name))
        for name in type(params).model_fields
        if name not in left_out
    }


def _plain_value(value: Any) -> Any:
    """Return a JSON value with digests of the contents in place of paths."""
    if isinstance(value, Path):
        return digests.describe(value)
    if isinstance(value, BaseModel):
        return describe_params(value)
    if isinstance(value, Mapping):
        return {str(key): _plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain_value(each) for each in value), key=repr)
    return to_jsonable_python(value, inf_nan_mode="strings")


def _step(node: Node) -> dict[str, Any]:
    params = node.model.export if node.step is None else node.step.params
    assert params is not None
    found = {"stage": node.stage, "params": describe_params(params)}
    if isinstance(params, OptimizeParams) and params.level == "ort-all":
        found["cpu"] = instruction_sets()
    provider = node.step.stage.provider if node.step is not None else None
    return found if provider is None else {**found, "plugin": provider.sources}


def _versions(node: Node) -> dict[str, str]:
    """Return the versions of all libraries in the chain: the product's note names them."""
    steps = [each.step for each in node.chain if each.step is not None]
    used = {name for step in steps for name in (*step.stage.libraries, *RUNS_ON[step.stage.gives])}
    if node.chain[0].step is None:
        used |= {*SOURCES.get(node.model.origin.format, ())}
    if node.validation is not None:
        used |= {*runtime_libraries(node.validation)}
    given = [step.params for step in steps] + [node.validation]
    samples = (getattr(params, name, None) for params in given for name in ("inputs", "calib"))
    folders = [each for each in samples if isinstance(each, Path)]
    for name, suffixes in _READERS.items():
        if any(holds_suffix(folder, suffixes) for folder in folders):
            used.add(name)
    found = {name: version for name in sorted({*_COMPUTES, *used}) if (version := _version(name))}
    return found | _external_tools(node) | {"onnxport": __version__, "sources": own_sources()}


@lru_cache(maxsize=256)
def _version(name: str) -> str | None:
    """Return the version of an installed distribution; constant while a process runs."""
    return library(name).version


def _external_tools(node: Node) -> dict[str, str]:
    """Return the versions of converters in separate environments that may take part."""
    params = node.model.export if node.step is None else node.step.params
    with contextlib.suppress(MissingDependencyError):
        if isinstance(params, TfliteParams) and params.route != "direct":
            from onnxport.converters.tflite.second_route.onnx2tf import Onnx2tf

            reads.look(reads.no_command, os.fspath(params.onnx2tf or "onnx2tf"))
            return {"onnx2tf": Onnx2tf.find(params.onnx2tf).version}
        if isinstance(params, ExportParams) and node.model.origin.format == "paddle":
            from onnxport.exporters.paddle.environment import Environment

            return {"paddle2onnx": Environment.find(params.paddle2onnx).version}
    return {}


@lru_cache(maxsize=1)
def own_sources() -> str:
    """Return a digest of this package's code, which changes between releases too."""
    home = Path(__file__).parents[2]
    tree = hashlib.sha256()
    for place, folders, names in os.walk(home):
        folders.sort()
        for file in sorted(os.path.join(place, name) for name in names if not name.endswith(".pyc")):
            with open(file, "rb", buffering=0) as stream:
                name = os.path.relpath(file, home).replace(os.sep, "/")
                tree.update(name.encode() + b"\0" + stream.readall())
    return tree.hexdigest()[:16]

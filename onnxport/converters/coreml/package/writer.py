"""Serialization of a MIL program as an .mlpackage: the same program gives the same bytes.

coremltools' own writer puts random UUIDs into the manifest, serializes maps in the order of the hash seed, and leaves
a copy in the temp folder if it is killed. The layout of a package is simple:

    model.mlpackage/Manifest.json
                    Data/com.apple.CoreML/model.mlmodel
                    Data/com.apple.CoreML/weights/weight.bin
"""

from __future__ import annotations

import errno
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxport.converters.coreml.library import MILProtoExporter, Program, proto
from onnxport.converters.coreml.lower import Lowered
from onnxport.converters.coreml.names import PREDICTED, PROBABILITIES
from onnxport.converters.coreml.package.description import describe_function
from onnxport.converters.coreml.passes.constant_deduplication import share_across, share_constants
from onnxport.converters.coreml.passes.pipeline import operations_of
from onnxport.formats.manifest import MAIN

_DATA = "com.apple.CoreML"
_MODEL, _WEIGHTS = f"{_DATA}/model.mlmodel", f"{_DATA}/weights"
# The namespace of the identifiers in a package, which would otherwise be random.
_NAMESPACE = uuid.UUID("7e0a2d9c-6d0a-5f0f-9a55-0f6b5c0c2b11")


@dataclass(frozen=True)
class Metadata:
    """The metadata of a package.

    Attributes:
        user_defined: entries that apps can read.
        others: Core ML's own, by field name: author, license, versionString, shortDescription.
    """

    user_defined: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)


_FAILED_WRITE = "[MIL FileWriter]"  # begins the message of coremltools' writer of weights
_CHUNK = 2**20  # bytes


def write_package(functions: Mapping[str, Lowered], folder: Path, metadata: Metadata) -> None:
    """Write the programs by function name to a package, `folder`, which must not exist.

    A single one is `main`, in the form that older systems read, too.

    Raises:
        OSError: the disk is full, or `folder` may not be written.
    """
    weights = folder / "Data" / _WEIGHTS
    weights.mkdir(parents=True)
    program = functions[MAIN].program
    if len(functions) > 1:
        program = Program()
        for name, lowered in functions.items():
            program.add_function(name, lowered.program.functions[MAIN])
        share_across(operations_of(program))
    version = program.functions[MAIN].opset_version.value
    exporter = MILProtoExporter(prog=program, weights_dir=str(weights), specification_version=version)
    model = proto.Model_pb2.Model(specificationVersion=version)
    try:
        model.mlProgram.CopyFrom(exporter.export())
    except RuntimeError as error:
        if _FAILED_WRITE in str(error):
            raise _write_error(weights) from error
        raise
    share_constants(model.mlProgram)
    if len(functions) == 1:
        _describe(model.description, functions[MAIN])
    else:
        model.description.defaultFunctionName = MAIN
        for name, lowered in functions.items():
            _describe(model.description.functions.add(name=name), lowered)
    model.description.metadata.userDefined.update(metadata.user_defined)
    for name, text in metadata.others.items():
        setattr(model.description.metadata, name, text)
    (folder / "Data" / _MODEL).write_bytes(model.SerializeToString(deterministic=True))
    (folder / "Manifest.json").write_text(_manifest_json(), encoding="utf-8")


def _write_error(folder: Path) -> OSError:
    """Return the operating system's reason for a failed write, which coremltools does not report."""
    try:
        (folder / "again").write_bytes(bytes(_CHUNK))
    except OSError as error:
        return error
    return OSError(errno.EIO, "coremltools could not write the weights")


def _describe(target: Any, lowered: Lowered) -> None:
    """Fill the description of a function, or of a model with one function."""
    describe_function(target, lowered.program.functions[MAIN], lowered.sizes, lowered.images)
    if lowered.labels:
        target.predictedFeatureName = PREDICTED
        target.predictedProbabilitiesName = PROBABILITIES


def _manifest_json() -> str:
    entries = {
        "model.mlmodel": ("CoreML Model Specification", _MODEL),
        "weights": ("CoreML Model Weights", _WEIGHTS),
    }
    listed = {
        str(uuid.uuid5(_NAMESPACE, name)).upper(): {
            "author": _DATA,
            "description": description,
            "name": name,
            "path": path,
        }
        for name, (description, path) in entries.items()
    }
    root = str(uuid.uuid5(_NAMESPACE, "model.mlmodel")).upper()
    content = {"fileFormatVersion": "1.0.0", "itemInfoEntries": listed, "rootModelIdentifier": root}
    return json.dumps(content, indent=4, sort_keys=True)

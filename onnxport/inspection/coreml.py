"""The content of an `.mlpackage`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.core.errors import MissingDependencyError
from onnxport.formats.artifact import Artifact
from onnxport.formats.manifest import KEY
from onnxport.inspection.report import Inspection, PortRecord, count, list_dynamic, own_manifest, ports

# The oldest systems that load each version of the format.
_SYSTEMS = {
    6: "iOS15, macOS 12",
    7: "iOS16, macOS 13",
    8: "iOS17, macOS 14",
    9: "iOS18, macOS 15",
    10: "iOS26, macOS 26",
}
# Metadata that coremltools writes.
_VERSION = "com.github.apple.coremltools.version"


def inspect(artifact: Artifact) -> Inspection:
    try:
        from onnxport.formats.mlpackage.reader import read_package

        package = read_package(artifact.path)  # refuses what is damaged
    except ImportError as error:
        raise MissingDependencyError(
            "coremltools cannot be imported", why=str(error), fix="install it: pip install coremltools"
        ) from error
    operations = [each for function in package.functions.values() for each in function.block.walk()]
    inputs, outputs = _ends(package, artifact.path)
    version = package.spec.specificationVersion
    return Inspection(
        path=str(artifact.path),
        format="coreml",
        size=artifact.size,
        files=artifact.names,
        producer=_producer(package),
        ir_version=version,
        opsets={"coreml": _opset(package)},
        inputs=inputs,
        outputs=outputs,
        operators=count(each.type for each in operations if each.type != "const"),
        parameters=sum(map(_elements, operations)),
        dynamic=list_dynamic(inputs),
        unusual=tuple(_unusual(package, operations)),
        manifest=own_manifest(package.description.metadata.userDefined.get(KEY)),
    )


def _ends(package: Any, path: Path) -> tuple[tuple[PortRecord, ...], tuple[PortRecord, ...]]:
    from onnxport.runtimes.mlprogram.ports import signature

    if package.default not in package.functions:
        return (), ()
    found = signature(package, path, package.default)
    return ports(port.spec for port in found.inputs), ports(port.spec for port in found.outputs)


def _elements(operation: Any) -> int:
    """Return the number of elements of a constant; compressed weights count as unpacked."""
    if operation.type != "const" and not operation.type.startswith("constexpr_"):
        return 0
    if operation.type == "const" and not isinstance(operation.attributes["val"].value, np.ndarray):
        return 0
    return sum(
        math.prod(size or 1 for size in type_.shape or ())
        for _, type_ in operation.outputs
        if type_.shape  # settings are scalars and lists
    )


def _opset(package: Any) -> int:
    """Return 7 for "CoreML7"."""
    opset = next(iter(package.functions.values())).opset
    return int("".join(filter(str.isdigit, opset)) or 0)


def _producer(package: Any) -> str:
    """Return the converter that the package names, and the oldest systems that load it."""
    maker = package.description.metadata.userDefined.get(_VERSION, "")
    version = package.spec.specificationVersion
    systems = f"for {_SYSTEMS.get(version, f'specification {version}')} and newer"
    return f"coremltools {maker}, {systems}" if maker else systems


def _unusual(package: Any, operations: list[Any]) -> Iterator[str]:
    if len(package.functions) > 1:
        number, names = len(package.functions), ", ".join(package.functions)
        yield f"{number} functions: {names}; the inputs and outputs are those of {package.default}"
    described = package.described(package.default)
    for features, kind in (
        (described.input, "input"),
        (described.output, "output"),
        (described.state, "state"),
    ):
        for feature in features:
            type_ = feature.type.WhichOneof("Type")
            if type_ not in ("multiArrayType", "stateType"):
                yield f"{kind} {feature.name!r} is of {str(type_).removesuffix('Type')} type"
    if states := [feature.name for feature in described.state]:
        yield f"keeps states from one prediction to the next: {', '.join(states)}"
    packed = Counter(each.type for each in operations if each.type.startswith("constexpr_"))
    if packed:
        yield "weights in fewer bits: " + ", ".join(f"{n} {name}" for name, n in sorted(packed.items()))

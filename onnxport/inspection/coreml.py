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
from onnxport.inspection.report import PortRecord, count, ports

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


def inspect(artifact: Artifact) -> dict[str, Any]:
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
    opset = next(iter(package.functions.values())).opset
    # Compressed weights count as unpacked; settings are scalars and lists.
    stored = [
        each
        for each in operations
        if each.type.startswith("constexpr_")
        or (each.type == "const" and isinstance(each.attributes["val"].value, np.ndarray))
    ]
    shapes = [type_.shape for each in stored for _, type_ in each.outputs if type_.shape]
    return {
        "producer": _producer(package),
        "ir_version": version,
        "opsets": {"coreml": int("".join(filter(str.isdigit, opset)) or 0)},  # 7 of "CoreML7"
        "inputs": inputs,
        "outputs": outputs,
        "operators": count(each.type for each in operations if each.type != "const"),
        "parameters": sum(math.prod(size or 1 for size in shape) for shape in shapes),
        "unusual": tuple(_unusual(package, operations)),
        "manifest": package.description.metadata.userDefined.get(KEY),
    }


def _ends(package: Any, path: Path) -> tuple[tuple[PortRecord, ...], tuple[PortRecord, ...]]:
    from onnxport.runtimes.mlprogram.ports import signature

    if package.default not in package.functions:
        return (), ()
    found = signature(package, path, package.default)
    return ports(port.spec for port in found.inputs), ports(port.spec for port in found.outputs)


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
    for kind in ("input", "output", "state"):
        for feature in getattr(described, kind):
            type_ = feature.type.WhichOneof("Type")
            if type_ not in ("multiArrayType", "stateType"):
                yield f"{kind} {feature.name!r} is of {str(type_).removesuffix('Type')} type"
    if states := [feature.name for feature in described.state]:
        yield f"keeps states from one prediction to the next: {', '.join(states)}"
    packed = Counter(each.type for each in operations if each.type.startswith("constexpr_"))
    if packed:
        yield "weights in fewer bits: " + ", ".join(f"{n} {name}" for name, n in sorted(packed.items()))

"""The list of operators and element types that a reduced build of ONNX Runtime needs for `.ort` files.

ONNX Runtime's build reads it (`--include_ops_by_config`). We write it with ONNX Runtime's tool, but without paths and
the same every time, for one model or several, and compare it with the nodes in the file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxport.core.errors import InputError
from onnxport.core.lazy_imports import hidden
from onnxport.formats.ort_file import Table

SUFFIX = ".required_operators.config"
# ONNX's own domain, which a file leaves empty.
ONNX = "ai.onnx"
# C++ names of onnxruntime.fbs.TensorDataType, as the list spells them.
_CPP_TYPES = (
    "unknown float uint8_t int8_t uint16_t int16_t int32_t int64_t std::string bool MLFloat16 double uint32_t uint64_t"
    " complex64 complex128 BFloat16 Float8E4M3FN Float8E4M3FNUZ Float8E5M2 Float8E5M2FNUZ UInt4x2 Int4x2"
).split()
_TENSOR = 1  # of a TypeInfoValue


@dataclass(frozen=True)
class Use:
    """The properties of a node by which ONNX Runtime chooses a kernel.

    Attributes:
        domain: "ai.onnx" for ONNX's own.
        version: the opset of this version of the operator.
        inputs, outputs: the C++ element types; "" for an absent value or one that is not a tensor.
    """

    domain: str
    version: int
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


# What ONNX Runtime's reader raises for files that are.
_DAMAGED = (struct.error, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


def find_uses(session: Table) -> Iterator[Use]:
    """Yield every node of an `.ort` file as ort_file.read returns it, including subgraphs."""
    return _uses(session["model"]["graph"], {})


def _uses(graph: Table, around: Mapping[bytes, str]) -> Iterator[Use]:
    types = dict(around) | {value["name"]: _type(value) for value in graph.get("node_args", [])}
    for node in graph.get("nodes", []):
        yield Use(
            bytes(node.get("domain", b"")).decode(errors="replace") or ONNX,
            node["since_version"],
            bytes(node["op_type"]).decode(errors="replace"),
            tuple(types.get(name, "") for name in node.get("inputs", [])),
            tuple(types.get(name, "") for name in node.get("outputs", [])),
        )
        for attribute in node.get("attributes", []):
            for inner in (*attribute.get("graphs", []), *([attribute["g"]] if "g" in attribute else [])):
                yield from _uses(inner, types)


def _type(value: Table) -> str:
    type_ = value.get("type", {})
    return _CPP_TYPES[type_["value"].get("elem_type", 0)] if type_.get("value_type") == _TENSOR else ""


def write_list(paths: Sequence[Path]) -> str:
    """Write the list for a build that runs all `.ort` files of `paths`.

    Only builds with --enable_reduced_operator_type_support use the types.
    """
    # Imported late: it extends sys.path. Hidden: its package would import torch.
    with hidden(["torch"]):
        from onnxruntime.tools.ort_format_model import OperatorTypeUsageManager, OrtFormatModelProcessor

    operators: dict[str, dict[int, set[str]]] = {}
    types = OperatorTypeUsageManager()
    for path in paths:
        try:
            OrtFormatModelProcessor(str(path), operators, types).process()
        except _DAMAGED as error:
            raise InputError(f"{path} cannot be read", why="the file is damaged") from error
    names = ", ".join(sorted({path.name for path in paths}))
    verb = "needs" if len(paths) == 1 else "need"
    lines = [f"# What {names} {verb} of ONNX Runtime: build.py --include_ops_by_config <this file>"]
    for domain, versions in sorted(operators.items()):
        for version, found in sorted(versions.items()):
            entries = [name + (types.get_config_entry(domain, name) or "") for name in sorted(found)]
            lines.append(f"{domain};{version};{','.join(entries)}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class OperatorList:
    """The contents of a list.

    Attributes:
        operators: (domain, opset, operator).
        types: (domain, operator) to ("inputs" or "outputs", index) to the supported types; other operators support all.
    """

    operators: frozenset[tuple[str, int, str]]
    types: Mapping[tuple[str, str], Mapping[tuple[str, int], frozenset[str]]]

    def lacks(self, nodes: Iterable[Use]) -> tuple[str, ...]:
        """Name what a build by the list lacks for `nodes`: "Conv 22", "Gather 13 of int64_t (input 1)"."""
        return tuple(dict.fromkeys(each for node in nodes for each in self._lack(node)))

    def _lack(self, node: Use) -> Iterator[str]:
        named = f"{node.operator} {node.version}"
        if (node.domain, node.version, node.operator) not in self.operators:
            yield named if node.domain == ONNX else f"{node.domain}::{named}"
            return
        for (side, index), kept in self.types.get((node.domain, node.operator), {}).items():
            present = node.inputs if side == "inputs" else node.outputs
            if index < len(present) and present[index] and present[index] not in kept:
                yield f"{named} of {present[index]} ({side[:-1]} {index})"


def parse_list(text: str) -> OperatorList:
    """Parse a list; ValueError if `text` is not one."""
    operators: set[tuple[str, int, str]] = set()
    types: dict[tuple[str, str], Mapping[tuple[str, int], frozenset[str]]] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith(("#", "!")):
            continue
        domain, opsets, entries = (part.strip() for part in line.split(";", 2))
        for name, kept in _entries(entries):
            operators |= {(domain, int(opset), name) for opset in opsets.split(",")}
            if kept is not None:
                types[domain, name] = kept
    return OperatorList(frozenset(operators), types)


def _entries(text: str) -> Iterator[tuple[str, Mapping[tuple[str, int], frozenset[str]] | None]]:
    """Yield the entries of `Add,Cast{"inputs": {"0": ["float"]}},Concat`."""
    decoder = json.JSONDecoder()
    while text:
        ends = [at for at in (text.find(","), text.find("{")) if at >= 0]
        end = min(ends, default=len(text))
        name, text = text[:end].strip(), text[end:]
        kept = None
        if text.startswith("{"):
            described, length = decoder.raw_decode(text)
            text = text[length:]
            # OneHot has triples under "custom", which name no input or output.
            kept = {
                (side, int(index)): frozenset(found)
                for side in ("inputs", "outputs")
                for index, found in described.get(side, {}).items()
            }
        yield name, kept
        text = text.lstrip().removeprefix(",")

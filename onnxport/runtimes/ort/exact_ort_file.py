"""Integer products that saturate on no CPU, for `.ort` files: the change of exact_integers.py in their tables.

DequantizeLinear stays: ONNX Runtime fuses before it writes such a file, not when it loads one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxport.formats import ort_file
from onnxport.formats.ort_file import Table
from onnxport.runtimes.ort.integer_products import OFFSET, OPERANDS, Operands, to_unsigned

_UINT8, _INT8 = 2, 3  # TensorProto's numbers


def with_unsigned_weights(path: Path) -> bytes | None:
    """Return the `.ort` file at `path` with exact integer products; None if nothing had to change or it is unknown."""
    try:
        session = ort_file.read(path.read_bytes())
        changed = [_change(graph) for graph in _graphs(session["model"]["graph"])]
    except (ValueError, KeyError, IndexError):  # ONNX Runtime will report what is wrong
        return None
    return bytes(ort_file.write(session)) if any(changed) else None


def _graphs(graph: Table) -> Iterator[Table]:
    """Yield a graph and its subgraphs."""
    yield graph
    for node in graph.get("nodes", []):
        for attribute in node.get("attributes", []):
            for inner in (*attribute.get("graphs", []), *([attribute["g"]] if "g" in attribute else [])):
                yield from _graphs(inner)


def _change(graph: Table) -> bool:
    """Make the weights of every product of uint8 by constant int8 unsigned; return whether there was one."""
    constants = {bytes(each["name"]): each for each in graph.get("initializers", [])}
    types = {bytes(each["name"]): each for each in graph.get("node_args", [])}
    changed = False
    for node in graph.get("nodes", []):
        operands = OPERANDS.get((_text(node.get("domain", b"")), _text(node["op_type"])))
        if operands is None or not _is_unsigned(operands, node["inputs"], types):
            continue
        for place, zero in operands.weights:
            name = bytes(node["inputs"][place])
            if not _is_int8(constants.get(name)):
                continue  # computed weights stay as they are
            changed = True
            node["inputs"][place] = _shift(graph, constants, types, name)
            _extend(graph, node, zero + 1)
            given = bytes(node["inputs"][zero])
            node["inputs"][zero] = (
                _shift(graph, constants, types, given) if given else _offset(graph, constants)
            )
    return changed


def _extend(graph: Table, node: Table, count: int) -> None:
    """Extend a node to `count` inputs by absent ones. None of our operators takes lists."""
    added = count - len(node["inputs"])
    if added > 0:
        node["inputs"] += [b""] * added
        counts = np.frombuffer(bytes(node["input_arg_counts"]), np.int32)
        given = np.ones(len(node["inputs"]), np.int32)
        node["input_arg_counts"] = np.concatenate([given, counts[len(given) :]]).tobytes()
    if b"" in node["inputs"] and not any(bytes(each["name"]) == b"" for each in graph["node_args"]):
        graph["node_args"].append({"name": b""})


def _is_unsigned(operands: Operands, inputs: Sequence[bytes], types: Mapping[bytes, Table]) -> bool:
    if operands.activation is None:
        return True
    described = types.get(bytes(inputs[operands.activation]), {})
    return bool(described.get("type", {}).get("value", {}).get("elem_type") == _UINT8)


def _is_int8(tensor: Table | None) -> bool:
    return tensor is not None and tensor.get("data_type") == _INT8 and "raw_data" in tensor


def _shift(graph: Table, constants: dict[bytes, Table], types: dict[bytes, Table], name: bytes) -> bytes:
    """Return the name of the constant 128 higher, created at the first call; other nodes may read the original."""
    other = name + b"/unsigned"
    if other not in constants:
        original = constants[name]
        raw = to_unsigned(np.frombuffer(bytes(original["raw_data"]), np.int8)).tobytes()
        constants[other] = original | {"name": other, "data_type": _UINT8, "raw_data": raw}
        graph["initializers"].append(constants[other])
        kind = types[name]["type"]
        value = kind["value"] | {"elem_type": _UINT8}
        types[other] = types[name] | {"name": other, "type": kind | {"value": value}}
        graph["node_args"].append(types[other])
    return other


def _offset(graph: Table, constants: dict[bytes, Table]) -> bytes:
    """Return the name of a constant of 128, for products without a zero point."""
    name = b"onnxport/128"
    if name not in constants:
        constants[name] = {"name": name, "data_type": _UINT8, "dims": b"", "raw_data": bytes([OFFSET])}
        graph["initializers"].append(constants[name])
        tensor = {"elem_type": _UINT8, "shape": {"dim": []}}
        graph["node_args"].append({"name": name, "type": {"value_type": 1, "value": tensor}})
    return name


def _text(data: Any) -> str:
    return bytes(data).decode(errors="replace")

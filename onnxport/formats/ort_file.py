"""Read an `.ort` file, and write it so that the same model gives the same bytes.

ONNX Runtime saves maps (initializers, value infos, attributes, kernels) in the order of hash tables, some with a new
seed in every process. We read the FlatBuffer's tables by the published schema (onnxruntime/core/flatbuffers/schema/
ort.fbs), sort the maps by their keys, and write one fixed layout. A field outside the schema below is refused.
"""

from __future__ import annotations

import mmap
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxport.core.errors import InputError
from onnxport.formats.growth import Growth

# Scalars are struct codes. `T` is a table, `[T]` a vector of it, `!T` a struct, `?` a union whose type precedes it,
# `-` a deprecated field that no current file has.
_SCHEMA: Mapping[str, tuple[tuple[str, str], ...]] = {
    table: tuple((name, kind) for name, _, kind in (field.partition(":") for field in fields.split()))
    for table, fields in {
        "InferenceSession": "ort_version:str model:Model session_state:- resolver:KernelTypeStrResolver",
        "Model": "ir_version:q opset_import:[OperatorSetId] producer_name:str producer_version:str domain:str"
        " model_version:q doc_string:str graph:Graph graph_doc_string:str metadata_props:[StringStringEntry]",
        "OperatorSetId": "domain:str version:q",
        "StringStringEntry": "key:str value:str",
        "Graph": "initializers:[Tensor] node_args:[ValueInfo] nodes:[Node] max_node_index:I"
        " node_edges:[NodeEdge] inputs:[str] outputs:[str] sparse_initializers:[SparseTensor]"
        " runtime_optimizations:RuntimeOptimizations",
        "Tensor": "name:str doc_string:str dims:[q] data_type:i raw_data:[B] string_data:[str]"
        " external_data_offset:q",
        "SparseTensor": "values:Tensor indices:Tensor dims:[q]",
        "ValueInfo": "name:str doc_string:str type:TypeInfo",
        "TypeInfo": "denotation:str value_type:B value:?TypeInfoValue",
        "TensorTypeAndShape": "elem_type:i shape:Shape",
        "SequenceType": "elem_type:TypeInfo",
        "MapType": "key_type:i value_type:TypeInfo",
        "Shape": "dim:[Dimension]",
        "Dimension": "value:DimensionValue denotation:str",
        "DimensionValue": "dim_type:b dim_value:q dim_param:str",
        "Node": "name:str doc_string:str domain:str since_version:i index:I op_type:str type:i"
        " execution_provider_type:str inputs:[str] outputs:[str] attributes:[Attribute] input_arg_counts:[i]"
        " implicit_inputs:[str]",
        "NodeEdge": "node_index:I input_edges:[!Iii] output_edges:[!Iii]",
        "Attribute": "name:str doc_string:str type:i f:f i:q s:str t:Tensor g:Graph floats:[f] ints:[q]"
        " strings:[str] tensors:[Tensor] graphs:[Graph]",
        "RuntimeOptimizations": "records:[RuntimeOptimizationRecordContainerEntry]",
        "RuntimeOptimizationRecordContainerEntry": "optimizer_name:str"
        " runtime_optimization_records:[RuntimeOptimizationRecord]",
        "RuntimeOptimizationRecord": "action_id:str nodes_to_optimize_indices:NodesToOptimizeIndices"
        " produced_nodes:- produced_op_ids:[str]",
        "NodesToOptimizeIndices": "node_indices:[I] num_inputs:I num_outputs:I has_variadic_input:B"
        " has_variadic_output:B num_variadic_inputs:I num_variadic_outputs:I",
        "KernelTypeStrResolver": "op_kernel_type_str_args:[OpIdKernelTypeStrArgsEntry]",
        "OpIdKernelTypeStrArgsEntry": "op_id:str kernel_type_str_args:[KernelTypeStrArgsEntry]",
        "KernelTypeStrArgsEntry": "kernel_type_str:str args:[ArgTypeAndIndex]",
        "ArgTypeAndIndex": "arg_type:b index:I",
    }.items()
}
_UNIONS = {"TypeInfoValue": ("", "TensorTypeAndShape", "SequenceType", "MapType")}

# Vectors that ONNX Runtime fills from hash tables, and the field that we sort them by. It searches the last two by
# bisection, so any other order would be wrong.
_SORTED_BY: Mapping[tuple[str, str], str] = {
    ("Model", "opset_import"): "domain",
    ("Model", "metadata_props"): "key",
    ("Graph", "initializers"): "name",
    ("Graph", "node_args"): "name",
    ("Node", "attributes"): "name",
    ("KernelTypeStrResolver", "op_kernel_type_str_args"): "op_id",
    ("OpIdKernelTypeStrArgsEntry", "kernel_type_str_args"): "kernel_type_str",
}

_IDENTIFIER = b"ORTM"
# Alignment of weights, for runtimes that use them in place; smaller ones than 1 KB are not worth the padding.
_WEIGHT_ALIGNMENT, _SMALL = 64, 1024

# What a reference counts as: its target becomes a dictionary or a string, many times its bytes in the file.
_REFERENCE = 64

# A table: field name -> number, bytes (a string, or packed numbers), table, or list of these.
Table = dict[str, Any]


def read(data: bytes | memoryview) -> Table:
    """Return the InferenceSession table of an `.ort` file; strings are bytes, weights are views of `data`.

    Raises ValueError if it is none, has fields outside our schema, or describes far more than its bytes can hold.
    """
    if data[4:8] != _IDENTIFIER:
        raise ValueError("it is not in the ONNX Runtime format")
    reader = _Reader(memoryview(data))
    try:
        return reader.table(_unsigned(reader.data, 0), "InferenceSession")
    except (struct.error, IndexError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("the file is truncated or damaged") from error


@contextmanager
def open_model(path: Path) -> Iterator[Table]:
    """Give the ORT model's table of a file, whose weights stay on disk; what damage does in the block is InputError."""
    try:
        with path.open("rb") as file:
            is_empty = not path.stat().st_size  # which cannot be mapped
            content = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        yield read(memoryview(content))["model"]
    except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
        why = str(error) if isinstance(error, ValueError) else "the file is damaged"
        raise InputError(f"{path} cannot be read", why=why) from error


def numbers(table: Table, field: str, code: str) -> tuple[Any, ...]:
    """Return packed numbers of a struct code; empty for a field that is left out."""
    return tuple(number for (number,) in struct.iter_unpack(f"<{code}", table.get(field, b"")))


def texts(table: Table, field: str) -> tuple[str, ...]:
    """Return a list of strings; empty for a field that is left out."""
    return tuple(bytes(each).decode(errors="replace") for each in table.get(field, []))


def text(table: Table, field: str) -> str:
    """Return a string; empty for a field that is left out."""
    return bytes(table.get(field, b"")).decode(errors="replace")


def write(session: Table) -> bytearray:
    """Return the `.ort` file of an InferenceSession table: the same bytes for the same content."""
    return _Writer().finish(session)


class _Reader:
    """Reads tables; where references share their targets, it stops before the content outgrows the file."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self._growth = Growth(len(data))

    def table(self, position: int, table: str) -> Table:
        vtable = position - struct.unpack_from("<i", self.data, position)[0]
        size = struct.unpack_from("<H", self.data, vtable)[0]
        slots = struct.unpack_from(f"<{(size - 4) // 2}H", self.data, vtable + 4)
        fields = _SCHEMA[table]
        values: Table = {}
        for index, offset in enumerate(slots):
            if not offset:
                continue
            name, kind = fields[index] if index < len(fields) else (f"field {index}", "-")
            if kind == "-":
                raise ValueError(f"{name} of {table} is not in the schema that we know")
            values[name] = self._value(position + offset, kind, values)
        for name in values:
            if key := _SORTED_BY.get((table, name)):
                values[name].sort(key=lambda entry: entry.get(key, b""))
        return values

    def _value(self, at: int, kind: str, siblings: Table) -> Any:
        if len(kind) == 1:
            return struct.unpack_from(f"<{kind}", self.data, at)[0]
        self._growth.take(_REFERENCE)
        target = at + _unsigned(self.data, at)
        if kind.startswith("?"):
            return self.table(target, _UNIONS[kind[1:]][siblings["value_type"]])
        if kind == "str":
            text = bytes(_slice(self.data, target + 4, _unsigned(self.data, target)))
            self._growth.take(len(text))
            return text
        if not kind.startswith("["):
            return self.table(target, kind)
        count, item = _unsigned(self.data, target), kind[1:-1]
        if _is_packed(item):
            return _slice(self.data, target + 4, count * _packed_size(item))
        return [self._value(target + 4 + 4 * index, item, {}) for index in range(count)]


def _is_packed(kind: str) -> bool:
    return len(kind) == 1 or kind.startswith("!")


def _packed_size(kind: str) -> int:
    return struct.calcsize(f"<{kind.removeprefix('!')}")


def _unsigned(data: memoryview, at: int) -> int:
    value: int = struct.unpack_from("<I", data, at)[0]
    return value


def _slice(data: memoryview, start: int, length: int) -> memoryview:
    if start + length > len(data):
        raise IndexError
    return data[start : start + length]


class _Writer:
    """The layout of a FlatBuffer: tables breadth first, with the weights among them, all strings at the end.

    References point forward, so each is a gap until its target is placed. Equal strings and vtables are stored once.
    """

    def __init__(self) -> None:
        self._out = bytearray(4) + _IDENTIFIER
        self._vtables: dict[bytes, int] = {}
        self._strings: dict[bytes, list[int]] = {}
        self._waiting: deque[tuple[int, str, Any]] = deque()

    def finish(self, session: Table) -> bytearray:
        self._refer(0, "InferenceSession", session)
        while self._waiting:
            self._place(*self._waiting.popleft())
        for text, references in self._strings.items():
            position = self._append(struct.pack("<I", len(text)) + text + b"\0", 4)
            for reference in references:
                self._point(reference, position)
        self._append(b"", 8)
        return self._out

    def _place(self, reference: int, kind: str, value: Any) -> None:
        """Append the target of `reference`."""
        if not kind.startswith("["):
            position = self._append_table(kind, value)
        elif _is_packed(kind[1:-1]):
            size = _packed_size(kind[1:-1])
            length = struct.pack("<I", len(value) // size)
            position = self._append(length, 8 if len(value) < _SMALL else _WEIGHT_ALIGNMENT, 4)
            self._out += value
        else:
            position = self._append(struct.pack("<I", len(value)) + bytes(4 * len(value)), 4)
            for index, item in enumerate(value):
                self._refer(position + 4 + 4 * index, kind[1:-1], item)
        self._point(reference, position)

    def _append_table(self, table: str, values: Table) -> int:
        """Append the table, after its vtable where that is new."""
        inline = {name: kind if len(kind) == 1 else "I" for name, kind in _SCHEMA[table] if name in values}
        # The widest first: all are aligned if the first one is.
        order = sorted(inline, key=lambda name: -_packed_size(inline[name]))
        offsets, size = {}, 4
        for name in order:
            offsets[name] = size
            size += _packed_size(inline[name])
        slots = [offsets.get(name, 0) for name, _ in _SCHEMA[table]]
        while slots and not slots[-1]:
            slots.pop()
        vtable = self._vtable(struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), size, *slots))
        position = self._append(bytes(size), 8, 4)
        struct.pack_into("<i", self._out, position, position - vtable)
        for name, kind in _SCHEMA[table]:
            if name not in values:
                continue
            if len(kind) == 1:
                struct.pack_into(f"<{kind}", self._out, position + offsets[name], values[name])
            else:
                if kind.startswith("?"):
                    kind = _UNIONS[kind[1:]][values["value_type"]]
                self._refer(position + offsets[name], kind, values[name])
        return position

    def _vtable(self, vtable: bytes) -> int:
        if vtable not in self._vtables:
            self._vtables[vtable] = self._append(vtable, 2)
        return self._vtables[vtable]

    def _refer(self, reference: int, kind: str, value: Any) -> None:
        if kind == "str":
            self._strings.setdefault(value, []).append(reference)
        else:
            self._waiting.append((reference, kind, value))

    def _append(self, data: bytes, alignment: int, header: int = 0) -> int:
        """Append `data`, aligned behind its first `header` bytes; return its position."""
        self._out += bytes(-(len(self._out) + header) % alignment)
        position = len(self._out)
        self._out += data
        return position

    def _point(self, reference: int, position: int) -> None:
        struct.pack_into("<I", self._out, reference, position - reference)

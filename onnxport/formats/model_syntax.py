"""What protobuf lets pass and readers fail on: texts that are no UTF-8, untyped tensors, bodies that do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from onnxport.core.errors import InputError
from onnxport.formats.model_limits import bodies

_ONNX = ("", "ai.onnx")
# Operators that run graphs -> their attributes.
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_TYPES = onnx.AttributeProto.AttributeType
# Type of an attribute -> the field that holds its value; and the types whose value cannot be left out.
_FIELDS = {
    **{_TYPES.Value(name): name[0].lower() for name in ("FLOAT", "INT", "STRING", "TENSOR", "GRAPH")},
    **{_TYPES.Value(name): name.lower() for name in ("FLOATS", "INTS", "STRINGS", "TENSORS", "GRAPHS")},
    _TYPES.Value("SPARSE_TENSOR"): "sparse_tensor",
    _TYPES.Value("SPARSE_TENSORS"): "sparse_tensors",
    _TYPES.Value("TYPE_PROTO"): "tp",
    _TYPES.Value("TYPE_PROTOS"): "type_protos",
}
_ALONE = (_TYPES.Value("TENSOR"), _TYPES.Value("GRAPH"))
_ABOUT = frozenset(("name", "doc_string", "type", "ref_attr_name"))


def check_syntax(proto: onnx.ModelProto, path: Path) -> None:
    """Raise InputError for texts that are no UTF-8, functions of one name, and nodes that no reader can make sense of.

    The last are attributes whose value is not of their type, tensors without one, a Constant whose number of values is
    not one, and control flow whose body has other inputs or outputs than the node. ONNX's checker lets these pass.
    """
    faults = (fault for nodes in _all_nodes(proto) for fault in map(_fault, nodes) if fault)
    why = "it has names or doc strings that are not UTF-8"
    if _is_text(proto):
        why = next(faults, "") or _fault_of_functions(proto)
    if why:
        raise InputError(f"{path} is not a valid ONNX model", why=why, fix="export it again")


def _fault_of_functions(proto: onnx.ModelProto) -> str:
    """Return which function is there twice; empty if none is."""
    names = Counter((each.domain, each.name, each.overload) for each in proto.functions)
    twice = next((name for name, number in names.items() if number > 1), ())
    return f"it has two functions {'::'.join(filter(None, twice))}" if twice else ""


def _all_nodes(proto: onnx.ModelProto) -> Iterator[Iterable[onnx.NodeProto]]:
    """Yield the nodes of the graph and of the functions, then those of the bodies in them."""
    waiting = [proto.graph.node, *(function.node for function in proto.functions)]
    while waiting:
        nodes = waiting.pop(0)
        yield nodes
        waiting += [graph.node for node in nodes for graph in bodies(node)]


def _fault(node: onnx.NodeProto) -> str:
    """Return why a node is none; empty if it is one."""
    for attribute in node.attribute:
        if fault := _fault_of_attribute(attribute):
            return f"{attribute.name!r} of its {node.op_type} {_name(node)!r} {fault}"
    if node.domain not in _ONNX:
        return ""
    if node.op_type == "Constant" and len(node.attribute) != 1:
        return f"its Constant {_name(node)!r} has {len(node.attribute)} attributes, and needs one, its value"
    if node.op_type not in _BODIES:
        return ""
    given = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
    for name in _BODIES[node.op_type]:
        if name not in given:
            return f"its {node.op_type} {_name(node)!r} has no {name}"
        body, taken, given_back = given[name], _inputs_of_body(node), _outputs_of_body(node)
        if len(body.input) not in taken or len(body.output) != given_back:
            return (
                f"{name!r} of its {node.op_type} {_name(node)!r} has {len(body.input)} inputs and {len(body.output)} "
                f"outputs, and needs {' or '.join(map(str, taken))} and {given_back}"
            )
    return ""


def _fault_of_attribute(attribute: onnx.AttributeProto) -> str:
    """Return what an attribute holds beside or instead of a value of its type; empty if it is as it should be."""
    held = {field.name for field, _ in attribute.ListFields()} - _ABOUT
    field = _FIELDS.get(attribute.type)  # none before IR version 2
    if field is None or attribute.ref_attr_name:
        wrong = set() if field is None else held
    else:
        wrong = held - {field} or ({field} - held if attribute.type in _ALONE else set())
    if wrong:
        return f"says that it is of the type {_TYPES.Name(attribute.type)} and is not"
    tensors = (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors)
    return "" if all(tensor.data_type for tensor in tensors) else "has no element type"


def _inputs_of_body(node: onnx.NodeProto) -> tuple[int, ...]:
    number = len(node.input)
    if node.op_type == "Scan":
        return (number, number - 1)  # before opset 9, the lengths of sequences come first
    return (max(number, 2),) if node.op_type == "Loop" else (0,)


def _outputs_of_body(node: onnx.NodeProto) -> int:
    return len(node.output) + (node.op_type == "Loop")  # its first tells whether to go on


def _is_text(message: Message) -> bool:
    """Return whether all strings of a message and of those in it are text; protobuf gives others as bytes."""
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        check = _is_text if field.type == FieldDescriptor.TYPE_MESSAGE else _is_str
        if not all(map(check, (value,) if isinstance(value, (str, bytes, Message)) else value)):
            return False
    return True


def _is_str(value: object) -> bool:
    return isinstance(value, str)


def _name(node: onnx.NodeProto) -> str:
    return node.name or next(iter(node.output), "")

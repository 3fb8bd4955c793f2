"""Nodes that ONNX Runtime would refuse to load.

Each release lacks other kernels of new operator versions (1.31 lacks RoiAlign-22), so ONNX Runtime loads a probe:
one node of each kind, without weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import onnx
import onnx_ir as ir

from onnxport.optimizers.opset.schemas import default_domain, is_default, since, type_name
from onnxport.optimizers.opset.type_inference import InferredTypes, infer_types
from onnxport.optimizers.params import OLDEST_OPSET

# An operator, and the types of its inputs and outputs; empty for an absent one.
_Kind = tuple[str, tuple[bytes, ...], tuple[bytes, ...]]

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def newest_opset(limit: int) -> int:
    """Return the newest opset up to `limit` that ONNX Runtime loads and whose schemas onnx knows."""
    for opset in range(min(limit, onnx.defs.onnx_opset_version()), OLDEST_OPSET, -1):
        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
        graph = onnx.helper.make_graph([node], "probe", ports[:1], ports[1:])
        imports = [onnx.helper.make_opsetid("", opset)]
        if _failure(onnx.helper.make_model_gen_version(graph, opset_imports=imports)) is None:
            return opset
    return OLDEST_OPSET


def find_unsupported(model: ir.Model) -> dict[ir.Node, str]:
    """Return the nodes of ONNX's own domain that ONNX Runtime would refuse, and why.

    Nodes of unknown types pass, and nodes with subgraphs: If, Loop and Scan have kernels for every opset and type.
    """
    opset = default_domain(model.opset_imports)
    kinds = _kinds(model, infer_types(model)) if opset is not None else {}
    if opset is None or not kinds:
        return {}
    header = onnx.ModelProto(ir_version=model.ir_version)
    header.opset_import.add(domain="", version=opset)
    if _failure(_probe(header, [(kind, nodes[0]) for kind, nodes in kinds.items()])) is None:
        return {}
    found: dict[ir.Node, str] = {}
    for kind, nodes in kinds.items():
        if why := _refusal(_probe(header, [(kind, nodes[0])]), f"{kind[0]}-{since(kind[0], opset)}", kind[1]):
            found.update(dict.fromkeys(nodes, why))
    return found


def _kinds(model: ir.Model, known: InferredTypes) -> Mapping[_Kind, Sequence[ir.Node]]:
    kinds: dict[_Kind, list[ir.Node]] = {}
    for node in model.graph.all_nodes():
        has_graphs = any(each.type in _GRAPHS for each in node.attributes.values())
        if not is_default(node) or node.op_type == "Constant" or has_graphs:
            continue
        ins, outs = (_types(values, known) for values in (node.inputs, node.outputs))
        if ins is not None and outs is not None:
            kinds.setdefault((node.op_type, ins, outs), []).append(node)
    return kinds


def _types(values: Sequence[ir.Value | None], known: InferredTypes) -> tuple[bytes, ...] | None:
    """Return the values' types, serialized; None if one is unknown."""
    found = []
    for value in values:
        proto = onnx.TypeProto()
        if value is not None and value.name:
            kind = known.type(value)
            if kind is None or kind.dtype == ir.DataType.UNDEFINED:
                return None
            ir.serde.serialize_type_into(proto, kind)
        found.append(proto.SerializeToString(deterministic=True))
    return tuple(found)


def _probe(header: onnx.ModelProto, kinds: Sequence[tuple[_Kind, ir.Node]]) -> onnx.ModelProto:
    """Return a model of these nodes side by side; its inputs and outputs have their types and any shape."""
    model = onnx.ModelProto()
    model.CopyFrom(header)
    model.graph.name = "probe"
    for number, ((op, ins, outs), node) in enumerate(kinds):
        proto = model.graph.node.add(op_type=op)
        for letter, types, names, ports in (
            ("x", ins, proto.input, model.graph.input),
            ("y", outs, proto.output, model.graph.output),
        ):
            for index, kind in enumerate(types):
                names.append(f"{letter}{number}.{index}" if kind else "")
                if kind:
                    ports.add(name=names[-1], type=onnx.TypeProto.FromString(kind))
        proto.attribute.extend(ir.serde.serialize_attribute(each) for each in node.attributes.values())
    return model


def _failure(model: onnx.ModelProto) -> Exception | None:
    """Return ONNX Runtime's error on the model; None if it loads."""
    from onnxport.runtimes.ort.inference_session import open_session

    try:
        open_session(model.SerializeToString(), level="disable", threads=1)
    except Exception as error:  # ONNX Runtime's own errors have no common class
        return error
    return None


def _refusal(model: onnx.ModelProto, node: str, types: Iterable[bytes]) -> str:
    """Return why ONNX Runtime refuses the node; empty if it does not, or if it depends on a value."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph, NotImplemented

    failure, runtime = _failure(model), f"ONNX Runtime {onnxruntime.__version__}"
    if isinstance(failure, NotImplemented):
        kernel = re.search(r"implementation for (\w+)\((\d+)\)", str(failure))
        lacked = "-".join(kernel.groups()) if kernel else node
        inside = f", which {node} expands to" if lacked != node else ""
        protos = (ir.serde.deserialize_type_proto_for_type(onnx.TypeProto.FromString(t)) for t in types if t)
        names = ", ".join(dict.fromkeys(type_name(each) for each in protos if each))
        return f"{runtime} has no kernel for {lacked} of {names}{inside}"
    if isinstance(failure, InvalidGraph):
        return f"{runtime} says: {str(failure).rpartition('INVALID_GRAPH : ')[2]}"
    return ""

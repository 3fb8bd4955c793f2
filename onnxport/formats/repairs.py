"""Repair what an ONNX file says wrongly of itself: runtimes take such files, the ONNX checker or newer runtimes do not.

Each repair keeps what the nodes compute. `mend` makes them in place and returns a note for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import onnx

from onnxport.formats.model_limits import bodies
from onnxport.formats.output_shapes import infer_output_shapes

# Bytes that protobuf serializes at most.
_PROTOBUF_LIMIT = 2**31 - 1
# The newest IR version that ONNX Runtime reads, and the first with operator sets.
_NEWEST_IR, _FIRST_IR = 13, 3
# Tensors with more elements are weights: shape inference needs their shapes alone.
_WEIGHT_ELEMENTS = 256
_LARGE_NODE = 4096  # bytes

# Operators whose result has the shape of their operand; that demand a rank; that demand the rank of their weight.
_OF_ONE_SHAPE = frozenset(("Cast", "Clip", "Identity", "Relu", "QuantizeLinear", "DequantizeLinear"))
_RANKS = {"Gemm": 2, "GRU": 3, "LSTM": 3, "RNN": 3}
_RANK_OF_WEIGHT = frozenset(("Conv", "ConvTranspose"))

_Dims = tuple[int | None, ...]


def mend(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Repair a model in place; return a note for each kind of repair, none for a model that needs none.

    Repaired are an IR version that ONNX Runtime does not read, nodes of one name, a graph without a name, equal
    weights and metadata that are there twice, inputs without a shape whose rank follows, block sizes of single scales,
    and shapes and types of values that contradict what the nodes compute.
    """
    notes = [
        *_lower_ir_version(proto),
        *_name_graph(proto.graph),
        *_name_nodes(proto.graph),
        *_drop_copies(proto.graph),
        *_keep_last_metadata(proto),
        *_declare_ranks(proto.graph),
        *_drop_single_blocks(proto.graph),
    ]
    return (*notes, *_correct_values(proto))


def mended_bytes(path: Path) -> bytes | None:
    """Return the file's model, mended; None if nothing is to be mended, or it is no model, or too large."""
    try:
        proto = onnx.load(path, load_external_data=False)
        mended = mend(proto)
    except Exception:  # protobuf and onnx raise types of their own, of texts that are no UTF-8 as well
        return None
    if not mended or proto.ByteSize() > _PROTOBUF_LIMIT:
        return None
    data: bytes = proto.SerializeToString()
    return data


def _lower_ir_version(proto: onnx.ModelProto) -> Iterator[str]:
    said = proto.ir_version
    if said > _NEWEST_IR:
        proto.ir_version = _NEWEST_IR
        yield f"the file says IR version {said}, which ONNX Runtime does not read; it was read as {_NEWEST_IR}"
    elif 0 < said < _FIRST_IR and proto.opset_import:
        proto.ir_version = _FIRST_IR
        yield f"the file says IR version {said}, which has no operator sets; it was read as {_FIRST_IR}"


def _name_graph(graph: onnx.GraphProto) -> Iterator[str]:
    if not graph.name and graph.node:
        graph.name = "graph"
        yield "the graph has no name; it was called 'graph'"


def _name_nodes(graph: onnx.GraphProto) -> Iterator[str]:
    renamed, example = 0, ""
    for nodes in _graphs(graph):
        taken = Counter(node.name for node in nodes)
        seen = set[str]()
        for node in nodes:
            if node.name and node.name in seen:
                example, number = example or node.name, 2
                while taken[name := f"{node.name}_{number}"]:
                    number += 1
                node.name = name
                taken[name] = 1
                renamed += 1
            seen.add(node.name)
    if renamed:
        yield f"nodes have one name, {example!r} among them; {renamed} got a number behind it"


def _graphs(graph: onnx.GraphProto) -> Iterator[Sequence[onnx.NodeProto]]:
    """Yield the nodes of the graph, then those of each body in it."""
    waiting = [graph]
    while waiting:
        nodes = waiting.pop().node
        yield nodes
        waiting += [body for node in nodes for body in bodies(node)]


def _drop_copies(graph: onnx.GraphProto) -> Iterator[str]:
    """Delete weights that are there again, equal; of two that differ, ONNX Runtime takes one or the other."""
    first = dict[str, onnx.TensorProto]()
    copies = list[int]()
    for number, tensor in enumerate(graph.initializer):
        known = first.setdefault(tensor.name, tensor)
        if known is not tensor and known == tensor:
            copies.append(number)
    for number in reversed(copies):
        name = graph.initializer[number].name
        del graph.initializer[number]
    if copies:
        yield f"{len(copies)} weights are there twice, {name!r} among them"


def _keep_last_metadata(proto: onnx.ModelProto) -> Iterator[str]:
    last = {entry.key: number for number, entry in enumerate(proto.metadata_props)}
    earlier = [number for number, entry in enumerate(proto.metadata_props) if last[entry.key] != number]
    for number in reversed(earlier):
        key = proto.metadata_props[number].key
        del proto.metadata_props[number]
    if earlier:
        yield f"metadata {key!r} is there more than once; the last one counts, as in ONNX Runtime"


def _drop_single_blocks(graph: onnx.GraphProto) -> Iterator[str]:
    """Drop the block size where one scale, [1], holds for all of a tensor: ONNX Runtime refuses to run these."""
    sizes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    found = []
    for nodes in _graphs(graph):
        for node in nodes:
            if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or sizes.get(node.input[1]) != [1]:
                continue
            for attribute in list(node.attribute):
                if attribute.name == "block_size" and attribute.i:
                    node.attribute.remove(attribute)
                    found.append(node.name or node.output[0])
    if found:
        yield (
            f"{len(found)} nodes have a block size and one scale, {found[0]!r} among them; ONNX Runtime takes no block "
            "size there"
        )


def _declare_ranks(graph: onnx.GraphProto) -> Iterator[str]:
    """Give each tensor among the inputs that has no shape the rank that a node demands, with open sizes."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for given in graph.input:
        tensor = given.type.tensor_type
        if not given.type.HasField("tensor_type") or tensor.HasField("shape") or given.name in ranks:
            continue
        same = {given.name}  # values of the input's shape
        for node in graph.node:
            if not node.input or node.input[0] not in same:
                continue
            if node.op_type in _OF_ONE_SHAPE:
                same.add(node.output[0])
            elif rank := _demanded_rank(node, ranks):
                for _ in range(rank):
                    tensor.shape.dim.add()
                yield f"input {given.name!r} has no shape in the file; its rank is {rank}, as {node.op_type} demands"
                break


def _demanded_rank(node: onnx.NodeProto, ranks: Mapping[str, int]) -> int:
    """Return the rank of a node's first operand, 0 where any will do."""
    if node.op_type in _RANKS:
        return _RANKS[node.op_type]
    if node.op_type in _RANK_OF_WEIGHT:
        return ranks.get(node.input[1], 0)
    lengths = {attribute.name: len(attribute.ints) for attribute in node.attribute}
    if node.op_type == "Transpose":
        return lengths.get("perm", 0)
    return lengths["kernel_shape"] + 2 if "kernel_shape" in lengths else 0


def _correct_values(proto: onnx.ModelProto) -> Iterator[str]:
    """Drop what the file says of values inside, and correct what it says of outputs, where the nodes compute others."""
    graph = proto.graph
    lacking = [output.name for output in graph.output if not output.HasField("type")]
    if lacking:
        infer_output_shapes(proto)
        given = {output.name for output in graph.output if output.HasField("type")}
        for name in sorted(given.intersection(lacking)):
            yield f"output {name!r} has no type in the file; it was inferred"
    if not graph.value_info and not graph.output:
        return
    computed = _inferred(proto)
    stale = [value for value in graph.value_info if _contradicts(value, computed)]
    for value in stale:
        graph.value_info.remove(value)
    if stale:
        yield (
            f"the file says a wrong shape or type of {len(stale)} values, {stale[0].name!r} among them; "
            "these were inferred again"
        )
    for output in graph.output:
        if _contradicts(output, computed) and _type_of(output) == _type_of(computed[output.name]):
            said, found = _dims_of(output), _dims_of(computed[output.name])
            output.type.CopyFrom(computed[output.name].type)
            yield f"the file says shape {_shown(said)} of output {output.name!r}; its nodes give {_shown(found)}"


def _inferred(proto: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the values that nodes of the main graph compute, with types and shapes from its inputs and weights."""
    bare = onnx.ModelProto(ir_version=max(proto.ir_version, 4), opset_import=proto.opset_import)
    bare.functions.extend(proto.functions)
    graph = bare.graph
    graph.name = "graph"
    for node in proto.graph.node:
        _add_without_weights(node, graph)
    weights = {tensor.name for tensor in proto.graph.initializer}
    graph.input.extend(value for value in proto.graph.input if value.name not in weights)
    for tensor in proto.graph.initializer:
        if _elements(tensor) > _WEIGHT_ELEMENTS or tensor.external_data:
            graph.input.append(_declared(tensor.name, tensor))
        else:
            graph.initializer.append(tensor)
    graph.output.extend(onnx.ValueInfoProto(name=output.name) for output in proto.graph.output)
    with suppress(Exception):  # onnx raises types of its own; such a model has no computed shapes
        found = onnx.shape_inference.infer_shapes(bare).graph
        return {value.name: value for value in (*found.value_info, *found.output) if value.HasField("type")}
    return {}


def _add_without_weights(node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
    """Add a node; a large Constant becomes an input, and trees leave their thresholds out, which shape nothing."""
    if node.ByteSize() <= _LARGE_NODE:
        graph.node.append(node)
    elif node.op_type == "Constant" and len(node.output) == 1 and node.attribute[0].HasField("t"):
        graph.input.append(_declared(node.output[0], node.attribute[0].t))
    else:
        bare = graph.node.add(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
        bare.attribute.extend(each for each in node.attribute if each.ByteSize() <= _LARGE_NODE)


def _declared(name: str, tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)


def _elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def _contradicts(value: onnx.ValueInfoProto, computed: dict[str, onnx.ValueInfoProto]) -> bool:
    """Return whether a value is said to have another element type, rank or size than its nodes give it."""
    if value.name not in computed or not value.HasField("type"):
        return False
    other = computed[value.name]
    if _type_of(value) != _type_of(other):
        return 0 not in (_type_of(value), _type_of(other))
    said, found = _dims_of(value), _dims_of(other)
    if said is None or found is None:
        return False
    return len(said) != len(found) or any(
        one is not None and two is not None and one != two for one, two in zip(said, found, strict=True)
    )


def _type_of(value: onnx.ValueInfoProto) -> int:
    return value.type.tensor_type.elem_type


def _dims_of(value: onnx.ValueInfoProto) -> _Dims | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim)


def _shown(dims: Iterable[int | None] | None) -> str:
    return "[" + ",".join("?" if dim is None else str(dim) for dim in dims or ()) + "]"

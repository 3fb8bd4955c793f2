"""Lowering of a model to an older opset, version by version, from the newest down.

A node whose operator changed is rewritten by a lowering (downgrades/) or checked against the older schema: attributes
with default values are dropped, other news is refused. An operator that the older version lacks, or whose older form
cannot express the node, is replaced by ONNX's definition of it.
"""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.errors import Refusal
from onnxport.optimizers.decomposition import complete_node, own_definition, shared_definition
from onnxport.optimizers.node_marks import REASON
from onnxport.optimizers.opset import downgrades  # noqa: F401 - fills the registry
from onnxport.optimizers.opset.downgrades.arithmetic import WIDER
from onnxport.optimizers.opset.errors import PART_OF, WHY, LiftError, part_of, refusal_of_part
from onnxport.optimizers.opset.formulas import rewrite_beyond
from onnxport.optimizers.opset.node import LOWERINGS, Change, Node, NoForm
from onnxport.optimizers.opset.schemas import default_domain, is_default, schema, set_opset, since, type_name
from onnxport.optimizers.opset.type_inference import infer_types

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_OLDEST_IR = 4  # below, every initializer is an input as well


def lower(model: ir.Model, to: int) -> list[str]:
    """Lower the default domain's opset of `model` to `to`, in place, subgraphs included.

    Names and weights stay. A model at `to` or older, or without ONNX operators, is left alone. The IR version falls
    to the oldest that holds the imports. After a LiftError the model is unusable.

    Returns:
        Notes for the user.

    Raises:
        LiftError: nodes that have no form at `to`, each with the reason.
    """
    opset = default_domain(model.opset_imports)
    if opset is None or opset <= to:
        return []
    count = sum(1 for _ in model.graph.all_nodes())
    start = rewrite_beyond(model, opset, to)
    lowering = _Lowering(model, to)
    for version in range(start, to, -1):
        lowering.step(version)
    if refusals := list(dict.fromkeys(lowering.refused.values())):
        raise LiftError(
            f"{len(refusals)} of {count} nodes cannot be lowered from opset {opset} to {to}",
            refusals=refusals,
        )
    for node in model.graph.all_nodes():
        for name in (PART_OF, WHY, REASON):
            node.metadata_props.pop(name, None)
    set_opset(model, to)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    oldest = onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
    model.ir_version = min(model.ir_version, max(oldest, _OLDEST_IR))
    return list(lowering.change.remarks)


class _Lowering:
    """A model under lowering, and the nodes that have no older form."""

    def __init__(self, model: ir.Model, to: int) -> None:
        self._model = model
        self.change = Change(model, to, infer_types(model))
        self._definitions = 0
        self.refused: dict[ir.Node, Refusal] = {}

    def step(self, version: int) -> None:
        """Convert nodes from the form of `version` to that of the version before."""
        set_opset(self._model, version)
        done: set[ir.Node] = set()
        self.change.made.clear()
        while pending := self._changing(version, done):
            functions = []
            for node in pending:
                done.add(node)
                try:
                    self._lower(node, version)
                except NoForm as error:
                    function = self._definition(node, version)
                    if function is None:
                        self._refuse(node, str(error))
                        continue
                    if schema(node.op_type, version - 1):
                        node.metadata_props.setdefault(WHY, str(error))
                    functions.append(function)
            if functions:
                self._inline(functions)

    def _changing(self, version: int, done: set[ir.Node]) -> list[ir.Node]:
        """Return the nodes still in the form of `version`, which changed their operator."""
        settled = done | self.change.made | set(self.refused)
        return [
            node
            for node in self._model.graph.all_nodes()
            if is_default(node) and node not in settled and since(node.op_type, version) == version
        ]

    def _lower(self, node: ir.Node, version: int) -> None:
        op, view = node.op_type, Node(node, self.change)
        newer, older = schema(op, version), schema(op, version - 1)
        if lowering := LOWERINGS.get((op, version)):
            lowering(view)
            if node.graph is None or node.op_type != op:
                return
        if older is None:
            reason = node.metadata_props.get(REASON)
            raise NoForm(reason or f"new in opset {version}, and it cannot be expressed by older operators")
        assert newer is not None
        _convert_to_older(view, newer, older)

    def _definition(self, node: ir.Node, version: int) -> ir.Function | None:
        """Return ONNX's definition of the node, under a name that it alone calls; None if there is none."""
        if any(each.type in _GRAPHS for each in node.attributes.values()):
            return None
        function = shared_definition(node.op_type, version)
        function = function or own_definition(node, version, self._type_of)
        if function is None:
            return None
        complete_node(node, function, version)
        self._definitions += 1
        node.overload = function.overload = f"lowered {self._definitions}"
        node.metadata_props.setdefault(PART_OF, part_of(node))
        return function

    def _type_of(self, value: ir.Value | None) -> onnx.TypeProto:
        proto = onnx.TypeProto()
        found = None if value is None else self.change.known.type(value)
        if value is not None and found is not None:
            ir.serde.serialize_type_into(proto, found)
            shape = self.change.known.shape(value)
            if shape is not None and isinstance(found, ir.TensorType):
                proto.CopyFrom(onnx.helper.make_tensor_type_proto(found.dtype.value, shape))
        return proto

    def _inline(self, functions: list[ir.Function]) -> None:
        self._model.functions.update({function.identifier(): function for function in functions})
        common.InlinePass()(self._model)
        self.change.known = infer_types(self._model)

    def _refuse(self, node: ir.Node, why: str) -> None:
        whole = refusal_of_part(node, why)
        same = (each for each in self.refused.values() if (each.op, each.node) == (whole.op, whole.node))
        self.refused[node] = next(same, whole)  # one reason for a node of the user's


# ---- a node of the newer form checked against the older schema


_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single


def _convert_to_older(node: Node, newer: onnx.defs.OpSchema, older: onnx.defs.OpSchema) -> None:
    """Convert a node of the form `newer` to `older`.

    Raises:
        NoForm: it has an attribute, an input, an output or a type that came with `newer`; the node is as it was.
    """
    new_attributes = [name for name in node.ir.attributes if name not in older.attributes]
    for name in new_attributes:
        value, formal = node.attribute(name), newer.attributes.get(name)
        default = None
        if formal is not None and formal.default_value.name:
            default = ir.serde.deserialize_attribute(formal.default_value).value
        if value != default:
            shown = value if isinstance(value, int | float | str) else list(value)
            raise NoForm(f"its {name}={shown} came with opset {newer.since_version}")
    node.trim()
    if len(node.ir.inputs) > older.max_input:
        name = newer.inputs[older.max_input].name
        raise NoForm(f"its input {name!r} came with opset {newer.since_version}")
    for index, parameter in enumerate(older.inputs):
        if parameter.option == _SINGLE and node.input(index) is None:
            raise NoForm(f"its input {parameter.name!r} may be absent since opset {newer.since_version} only")
    for index in range(older.max_output, len(node.ir.outputs)):
        if node.uses_output(index):
            raise NoForm(f"its output {newer.outputs[index].name!r} came with opset {newer.since_version}")
    _widen(node, newer, older)
    node.drop_outputs(min(older.max_output, len(node.ir.outputs)))
    for name in new_attributes:
        node.take(name)


def _widen(node: Node, newer: onnx.defs.OpSchema, older: onnx.defs.OpSchema) -> None:
    """Compute in a wider type where the older form does not take the node's types (WIDER)."""
    table = WIDER.get((newer.name, newer.since_version), {})
    casts: dict[int, ir.DataType] = {}
    names: dict[str, tuple[ir.DataType, ir.DataType]] = {}  # type parameter: from and to
    for index, value in enumerate(node.ir.inputs):
        parameter = _parameter(older.inputs, index)
        found = None if value is None else node.type(value)
        if found is None or type_name(found) in parameter.types:
            continue
        wider = table.get(found.dtype) if isinstance(found, ir.TensorType) else None
        if wider is None:
            raise NoForm(
                f"opset {newer.since_version - 1} does not take {type_name(found)} for its {parameter.name!r}"
            )
        casts[index] = wider
        names[parameter.type_str] = (found.dtype, wider)
    for index, value in enumerate(node.ir.outputs):
        parameter = _parameter(older.outputs, index)
        found = node.type(value)
        if parameter.type_str not in names and found is not None and type_name(found) not in parameter.types:
            raise NoForm(f"opset {newer.since_version - 1} does not give {type_name(found)}")
    for index, wider in casts.items():
        node.put_input(index, node.before("Cast", node.ir.inputs[index], to=int(wider)))
    for index in range(len(node.ir.outputs)):
        if pair := names.get(_parameter(older.outputs, index).type_str):
            node.after(index, "Cast", to=int(pair[0]))
            node.ir.outputs[index].type = ir.TensorType(pair[1])


def _parameter(parameters: Any, index: int) -> Any:
    """Return the schema's input or output at `index`; a variadic one, the last, covers all that follow."""
    return parameters[min(index, len(parameters) - 1)]

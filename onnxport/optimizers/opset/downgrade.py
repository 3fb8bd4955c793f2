"""Lowering of a model to an older opset, version by version, from the newest down.

A node whose operator changed is rewritten by a lowering (downgrades/) or checked against the older schema. An
operator that the older version lacks, or whose older form cannot express the node, is replaced by ONNX's definition
of it.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from onnxport.core.errors import Refusal
from onnxport.optimizers.decomposition import complete_node, own_definition, shared_definition
from onnxport.optimizers.opset import downgrades  # noqa: F401 - fills the registry
from onnxport.optimizers.opset.errors import PART_OF, WHY, LiftError, part_of, refusal_of_part
from onnxport.optimizers.opset.formulas import rewrite_beyond
from onnxport.optimizers.opset.node import LOWERINGS, Change, Node, NoForm
from onnxport.optimizers.opset.schema_check import convert_to_older
from onnxport.optimizers.opset.schemas import default_domain, is_default, schema, set_opset, since
from onnxport.optimizers.opset.type_inference import infer_types
from onnxport.optimizers.rewrites.registry import REASON

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
            raise NoForm(
                reason or f"ONNX has it since opset {version}, without a definition in other operators"
            )
        assert newer is not None
        convert_to_older(view, newer, older)

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

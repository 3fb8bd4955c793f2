"""The registry of rewritings into ONNX operators, and the node as a rewriting sees it.

Rewritings exist for operators of other domains, for ONNX's own without a function definition, and where a
definition can be improved on. Formulas are written with terms.py. Tests compare them with ONNX Runtime's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, NoReturn, overload

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model, dims_of
from onnxport.optimizers.node_marks import EXACT, REASON, WAITS
from onnxport.optimizers.params import CANONICAL_OPSET

Rewriting = Callable[["Rewrite"], None]
Operand = ir.Value | Array | np.generic | None

# Attributes of Conv, and of operators that ONNX Runtime made of it.
CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")

_UNKNOWN = (
    "has an input whose type or rank is unknown; declare it, or cut the model behind the node that gives it"
)

_REWRITINGS: dict[str, Rewriting] = {}
# Operator that targets have -> predicate for the forms that none has.
_FORMS: dict[str, Callable[[ir.Node], bool]] = {}


class CannotRewrite(Exception):
    """The reason why a node has no form in ONNX's own operators, and what would help."""


class NotYet(Exception):
    """A type or rank is unknown, but a later round of shape inference may find it."""


def rewrites(*ops: str, form: Callable[[ir.Node], bool] | None = None) -> Callable[[Rewriting], Rewriting]:
    """Register the decorated function for `ops`; other domains than ONNX's own are written "domain::Op".

    With a `form` it applies only to nodes of that form, even if the target has the operator.
    """

    def register(function: Rewriting) -> Rewriting:
        for op in ops:
            if op in _REWRITINGS:
                raise ValueError(f"{op} has a rewriting already: {_REWRITINGS[op]}")
            _REWRITINGS[op] = function
            if form is not None:
                _FORMS[op] = form
        return function

    return register


def refuse(op: str, why: str) -> None:
    """Register an operator that has no form in others, with the reason."""

    @rewrites(op)
    def refuse_node(node: Rewrite) -> None:
        node.unsupported(why)


def rewritten_ops() -> frozenset[str]:
    """Return the operators that have a rewriting."""
    return frozenset(_REWRITINGS)


def rewrite(model: Model, native: Collection[str], only: Collection[str] | None = None) -> list[str]:
    """Rewrite, once, the nodes outside `native` that have a rewriting; return their operators, sorted.

    With `only`, all other operators stay whatever their form. A node that cannot be rewritten carries the reason.
    """
    found = set()
    for node in list(model.graph.all_nodes()):
        op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
        applies = _FORMS[op](node) if op in _FORMS else op not in native
        if op not in _REWRITINGS or REASON in node.metadata_props or not applies:
            continue
        if only is not None and op not in only:
            continue
        view = Rewrite(model, node)
        try:
            _REWRITINGS[op](view)
            view.check_consumed()
        except NotYet:
            node.metadata_props[WAITS] = _UNKNOWN
            continue
        except CannotRewrite as error:
            node.metadata_props[REASON] = str(error)
            continue
        if not {"", "ai.onnx"} & set(model.ir.opset_imports):  # a model of foreign operators alone
            model.ir.opset_imports[""] = CANONICAL_OPSET
            model.ir.ir_version = max(model.ir.ir_version or 0, 10)  # which came with that opset
        view.replace()
        found.add(op)
    return sorted(found)


class Rewrite:
    """A node and the new nodes that will replace it.

    Operands of `op` are values of the graph or arrays, which become constants; None is an absent one. Nodes added
    while `is_exact` is set must not compute in fewer bits.
    """

    def __init__(self, model: Model, node: ir.Node) -> None:
        self.node = node
        self._model = model
        # A node made by an earlier rewriting has a name of its own below the value's.
        value = next((value.name for value in node.outputs if value.name), "") or "unnamed"
        self._name = node.name if node.name and node.name.startswith(f"{value}/") else value
        self._named = 0
        self._nodes: list[ir.Node] = []
        self._constants: list[ir.Value] = []
        self._results: dict[int, ir.Value] = {}
        self._read_attributes: set[str] = set()
        self._read_inputs: set[int] = set()
        self.is_exact = False

    # ---- what the node has

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the attribute's Python value (int, float, str, tuple, ndarray), or `default` if absent."""
        self._read_attributes.add(name)
        attribute = self.node.attributes.get(name)
        if attribute is None:
            return default
        if attribute.type == ir.AttributeType.TENSOR:
            return attribute.as_tensor().numpy()
        return tuple(attribute.value) if isinstance(attribute.value, list | tuple) else attribute.value

    def attributes(self, *names: str) -> dict[str, Any]:
        """Return attributes by name, None for absent ones."""
        return {name: self.attribute(name) for name in names}

    def inputs(self) -> list[ir.Value | None]:
        return [self.optional(index) for index in range(len(self.node.inputs))]

    def has_input(self, index: int) -> bool:
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def input(self, index: int) -> ir.Value:
        value = self.optional(index)
        if value is None:
            self.unsupported(f"lacks its required input {index}")
        return value

    def ignore(self, *attributes: str) -> None:
        """Mark attributes as read that change nothing; the caller gives the reason in a comment."""
        self._read_attributes.update(attributes)

    def optional(self, index: int) -> ir.Value | None:
        self._read_inputs.add(index)
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def wants_output(self, index: int) -> bool:
        """Return whether output `index` exists and has a reader."""
        if index >= len(self.node.outputs):
            return False
        value = self.node.outputs[index]
        return bool(value.name) and (bool(value.uses()) or value.is_graph_output())

    def dtype(self, value: ir.Value) -> np.dtype[Any]:
        if value.dtype is None:
            raise NotYet
        return np.dtype(value.dtype.numpy())

    def shape(self, value: ir.Value) -> tuple[int | None, ...]:
        """Return the inferred dimensions, None where open."""
        if value.shape is None:
            raise NotYet
        return tuple(dim if isinstance(dim, int) else None for dim in dims_of(value))

    def constant(self, index: int, what: str) -> Array:
        """Return the constant input at `index`; refuse the node where it is computed at run time."""
        value = self.input(index)
        if value.const_value is None:
            self.unsupported(f"{what} (input {index}) is computed at run time; it must be constant")
        array: Array = value.const_value.numpy()
        return array

    def opset(self, domain: str) -> int:
        """Return the version of a domain's operators in the model."""
        return self._model.ir.opset_imports.get(domain, 1)

    def unsupported(self, why: str) -> NoReturn:
        raise CannotRewrite(why)

    # ---- what takes its place

    @overload
    def op(self, op: str, *operands: Operand, outputs: Literal[1] = 1, **attributes: Any) -> ir.Value: ...
    @overload
    def op(self, op: str, *operands: Operand, outputs: int, **attributes: Any) -> list[ir.Value]: ...
    def op(self, op: str, *operands: Operand, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node of ONNX's own domain; return its result, or the list of its results if `outputs` are more."""
        inputs = [self.array(o) if isinstance(o, np.ndarray | np.generic) else o for o in operands]
        given = {name: value for name, value in attributes.items() if value is not None}
        node = ir.node(op, inputs, given, num_outputs=outputs, name=self._fresh(op))
        if self.is_exact:
            node.metadata_props[EXACT] = "float32"
        self._nodes.append(node)
        for index, value in enumerate(node.outputs):
            value.name = self._fresh(op) if index else node.name
        return node.outputs[0] if outputs == 1 else list(node.outputs)

    def cast(self, value: ir.Value, dtype: np.dtype[Any] | type) -> ir.Value:
        """Cast a value of known type, unless it has the type already."""
        if self.dtype(value) == dtype:
            return value
        return self.op("Cast", value, to=ir.DataType.from_numpy(np.dtype(dtype)))

    def array(self, array: Array | np.generic) -> ir.Value:
        """Add a constant."""
        data = np.asarray(array)
        tensor = ir.StringTensor(np.char.encode(data)) if data.dtype.kind == "U" else ir.Tensor(data)
        value = ir.val(self._fresh("constant"), const_value=tensor)
        self._constants.append(value)
        return value

    def _fresh(self, what: str) -> str:
        self._named += 1
        return f"{self._name}/{what}.{self._named}"

    def emit(self, value: ir.Value, index: int = 0) -> None:
        """Bind `value` to output `index`."""
        if value.producer() not in self._nodes or value in self._results.values():
            value = self.op("Identity", value)
        self._results[index] = value

    def check_consumed(self) -> None:
        """Refuse the node if an attribute or input is unread, or a wanted output unbound."""
        attributes = set(self.node.attributes) - self._read_attributes
        inputs = {i for i, value in enumerate(self.node.inputs) if value is not None} - self._read_inputs
        outputs = {i for i in range(len(self.node.outputs)) if self.wants_output(i)} - set(self._results)
        for kind, left in (("attribute", attributes), ("input", inputs), ("output", outputs)):
            if left:
                self.unsupported(f"its {kind} {sorted(left)} is not handled")

    def replace(self) -> None:
        """Replace the node by the new ones."""
        graph = self.node.graph
        assert graph is not None
        for value in self._constants:
            self._model.graph.register_initializer(value)
        for index, old in enumerate(self.node.outputs):
            new = self._results.get(index)
            if new is None:
                continue
            name, old.name = old.name, None
            new.name, new.type = name, old.type or new.type
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        graph.insert_before(self.node, self._nodes)
        graph.remove(self.node, safe=True)

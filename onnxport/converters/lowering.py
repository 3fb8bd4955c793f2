"""The registry of lowerings: one function per ONNX op.

A lowering takes its node as a `NodeView`, which records the attributes and inputs that are read. One that stays
unread was not honoured: the registry refuses the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.core.errors import Refusal
from onnxport.formats.model import dims_of
from onnxport.optimizers.node_marks import KNOWN_DOMAINS, REASON, WAITS

_V = TypeVar("_V")  # a target's value
_B = TypeVar("_B")  # a target's builder
_D = TypeVar("_D")

_REQUIRED: Any = object()


class UnsupportedOp(Exception):
    """A refused node; the driver collects all of them."""

    def __init__(self, op: str, node: str, why: str) -> None:
        super().__init__(f"{op} {node!r}: {why}")
        self.refusal = Refusal(op, node, why)


class TargetValue(Protocol):
    """A target's value, as far as the lowerings of all targets read it; see tflite.values and coreml.values."""

    @property
    def shape(self) -> tuple[int | None, ...]: ...

    @property
    def rank(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def constant(self) -> Array | None: ...


class NodeView(Generic[_V]):
    """One ONNX node for a lowering: attributes, operands as target values, results to emit.

    Attributes:
        op: the op type; names in other domains than ONNX's own are prefixed "domain::".
        name: the node's name, or its first output's where the file gives none.
        operands: the target's value for each input, None where the input is absent.
    """

    def __init__(self, node: ir.Node, operands: Sequence[_V | None]) -> None:
        self.node = node
        self.op = qualified_op(node)
        self.name = node_name(node)
        self.results: dict[int, _V] = {}
        self._operands = operands
        self._read_inputs: set[int] = set()
        self._read_attributes: set[str] = set()

    # ---- inputs and attributes

    def attribute(self, name: str, default: _D = _REQUIRED) -> Any | _D:
        """Return an attribute as int, float, str, tuple, ndarray or ir.Graph; `default` if it is absent."""
        self._read_attributes.add(name)
        attribute = self.node.attributes.get(name)
        if attribute is None:
            if default is _REQUIRED:
                self.unsupported(f"lacks its required attribute {name!r}")
            return default
        if attribute.type == ir.AttributeType.TENSOR:
            return attribute.as_tensor().numpy()
        value = attribute.value
        return tuple(value) if isinstance(value, list) else value

    def ignore(self, *attributes: str) -> None:
        """Mark attributes that change nothing at inference; give the reason in a comment."""
        self._read_attributes.update(attributes)

    def has_input(self, index: int) -> bool:
        return index < len(self._operands) and self.node.inputs[index] is not None

    def input(self, index: int) -> _V:
        """Return the operand at `index`; refuses the node where the file leaves it out."""
        value = self.optional(index)
        if value is None:
            self.unsupported(f"lacks its required input {index}")
        return value

    def optional(self, index: int) -> _V | None:
        self._read_inputs.add(index)
        return self._operands[index] if index < len(self._operands) else None

    @property
    def x(self) -> _V:
        """The first operand."""
        return self.input(0)

    def rest(self, start: int = 0) -> list[_V]:
        """Return all operands from `start` on, for variadic ops."""
        return [self.input(index) for index in range(start, len(self._operands))]

    # ---- outputs

    @property
    def output_count(self) -> int:
        return len(self.node.outputs)

    def wants_output(self, index: int) -> bool:
        """Return whether output `index` exists and anything uses it."""
        if index >= len(self.node.outputs):
            return False
        value = self.node.outputs[index]
        return bool(value.name) and (bool(value.uses()) or value.is_graph_output())

    def output_shape(self, index: int = 0) -> tuple[int | None, ...]:
        """Return the inferred shape of an output, None where a dimension is open; refuses an unknown rank."""
        value = self.node.outputs[index]
        if value.shape is None:
            self.unsupported("the rank of its result is known only at run time")
        return known_shape(value)

    def output_dtype(self, index: int = 0) -> np.dtype[Any]:
        dtype = self.node.outputs[index].dtype
        if dtype is None:
            self.unsupported("the element type of its result could not be inferred")
        return np.dtype(dtype.numpy())

    def emit(self, value: _V, index: int = 0) -> None:
        """Bind `value` to output `index`."""
        self.results[index] = value

    def unsupported(self, why: str) -> NoReturn:
        """Refuse this node.

        Args:
            why: continues "<op> '<name>' ..." and names a way out.
        """
        raise UnsupportedOp(self.op, self.name, why)

    def check_consumed(self) -> None:
        """Refuse the node if its lowering left an attribute or an input unread, or a wanted output unbound."""
        attributes = set(self.node.attributes) - self._read_attributes
        inputs = {i for i, value in enumerate(self.node.inputs) if value is not None} - self._read_inputs
        outputs = {i for i in range(self.output_count) if self.wants_output(i)} - set(self.results)
        for kind, left in (("attribute", attributes), ("input", inputs), ("output", outputs)):
            if left:
                self.unsupported(f"its {kind} {sorted(left)} is not handled")


Lowering = Callable[[NodeView[_V], _B], None]

RANDOM = "draws random numbers, which no two runtimes draw alike; feed them to the model as an input"
# Ops that no target can hold -> why.
_IMPOSSIBLE = {
    "RegexFullMatch StringConcat StringNormalizer StringSplit": (
        "{} has no string operators; cut the model around it and do this step outside"
    ),
    "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty "
    "SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence": (
        "{} has tensors only, no sequences or optional values"
    ),
    "Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": RANDOM,
}


def impossible_ops(target: str) -> dict[str, str]:
    """Return the ops that no target can hold, and why."""
    return {op: why.format(target) for ops, why in _IMPOSSIBLE.items() for op in ops.split()}


class Registry(Generic[_V, _B]):
    """Op type to lowering; an op registered twice is an error.

    Args:
        target: the format's name, for refusals.
        impossible: op type to the reason why the target can never hold it.
    """

    def __init__(self, target: str, impossible: Mapping[str, str]) -> None:
        self._target, self._impossible = target, impossible
        self._lowerings: dict[str, Lowering[_V, _B]] = {}

    def lower(self, *ops: str) -> Callable[[Lowering[_V, _B]], Lowering[_V, _B]]:
        """Register the decorated function for `ops`; other domains are written "domain::Op"."""

        def register(function: Lowering[_V, _B]) -> Lowering[_V, _B]:
            for op in ops:
                if op in self._lowerings:
                    raise ValueError(f"{op} has a lowering already: {self._lowerings[op]}")
                self._lowerings[op] = function
            return function

        return register

    def table(self, ops: Mapping[str, Lowering[_V, _B]]) -> None:
        """Register a table of ops that differ in a name only."""
        for op, function in ops.items():
            self.lower(op)(function)

    @property
    def ops(self) -> frozenset[str]:
        return frozenset(self._lowerings)

    def run(self, node: NodeView[_V], builder: _B) -> None:
        """Lower one node and checks that nothing of it was left unread (UnsupportedOp)."""
        lowering = self._lowerings.get(node.op)
        if lowering is None:
            way_out = "cut the model around it"
            if node.node.domain not in KNOWN_DOMAINS:
                way_out = "--operators FILE defines it in ONNX's operators"
            node.unsupported(
                node.node.metadata_props.get(REASON)
                or node.node.metadata_props.get(WAITS)
                or self._impossible.get(node.op, f"has no lowering to {self._target} yet; {way_out}")
            )
        lowering(node, builder)
        node.check_consumed()


def known_shape(value: ir.Value) -> tuple[int | None, ...]:
    """Return the inferred shape of an ONNX value of known rank, None where a dimension is open."""
    return tuple(dim if isinstance(dim, int) else None for dim in dims_of(value))


def qualified_op(node: ir.Node) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def node_name(node: ir.Node) -> str:
    """Return the node's name as Netron shows it; its first output's name where the file gives none."""
    return node.name or next((value.name for value in node.outputs if value.name), "") or "unnamed"

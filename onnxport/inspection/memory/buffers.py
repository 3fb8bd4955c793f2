"""The buffers of a graph: which values share memory, and from which node to which they hold it.

Rules of LiteRT: tensorflow/lite/arena_planner.cc. Inputs and outputs keep their memory; RESHAPE is a view; a sum or
product overwrites an operand that nothing else reads. Rules of ONNX Runtime: framework/allocation_planner.cc, and what
its profiler shows of memory at each node. Inputs are the caller's; a view and some elementwise operators take an
operand's memory; a result also takes a buffer of its shape that was freed, which stays allocated until then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from onnxport.formats.graph import Node, OperatorGraph, Tensor


class Rules(NamedTuple):
    """How a runtime shares memory between values."""

    views: frozenset[str]  # operators whose result is their first operand
    in_place: frozenset[str]  # operators whose result may overwrite an operand
    holds_inputs: bool  # the arena has the model's inputs
    least: int  # bytes; results up to this size never overwrite an operand
    reuses: bool  # a freed buffer is kept for a later value of its shape


LITERT = Rules(
    views=frozenset("RESHAPE EXPAND_DIMS SQUEEZE BITCAST".split()),
    in_place=frozenset("ADD DIV MUL SUB".split()),
    holds_inputs=True,
    least=4,  # kScalarTensorBytes
    reuses=False,
)
ORT = Rules(
    views=frozenset("Flatten Identity Reshape Squeeze Unsqueeze".split()),
    in_place=frozenset("Cast Relu Softmax Sum".split()),
    holds_inputs=False,
    least=0,
    reuses=True,
)


@dataclass
class Buffer:
    """A piece of memory; `size` in bytes, `first` and `last` are positions of nodes."""

    size: int
    first: int
    last: int
    tensors: list[Tensor] = field(default_factory=list)
    offset: int = 0


def buffers_of(graph: OperatorGraph, rules: Rules) -> list[Buffer]:
    """Return the buffers of the graph's activations, in the order of their first node; those without size left out."""
    planning = _Planning(graph, rules)
    for number, node in enumerate(graph.nodes):
        planning.add(number, node)
    return planning.buffers()


class _Planning:
    """The buffers while the nodes are gone through."""

    def __init__(self, graph: OperatorGraph, rules: Rules) -> None:
        self._rules, self._outputs, self._inputs = rules, {*graph.outputs}, {*graph.inputs}
        self._end = max(len(graph.nodes) - 1, 0)
        self._readers = Counter(each for node in graph.nodes for each in node.reads())
        self._readers.update(graph.outputs)
        self._of: dict[Tensor, Buffer] = {}
        # By identity: the reads to come of a buffer's values.
        self._uses: Counter[int] = Counter()
        self._freed: list[Buffer] = []  # the latest last
        for each in graph.inputs if rules.holds_inputs else ():
            self._put(each, Buffer(bytes_of(each) or 0, 0, self._end))

    def add(self, number: int, node: Node) -> None:
        """Give the results of a node their buffers, then free what it reads last."""
        for place, made in enumerate(node.outputs):
            if made is not None and not made.is_constant:
                self._allocate(number, node, made, is_first=not place)
        for read in node.reads():
            if (buffer := self._of.get(read)) is not None:
                buffer.last = max(buffer.last, number)
                if self._rules.reuses:
                    self._uses[id(buffer)] -= 1
                    if not self._uses[id(buffer)]:
                        self._freed.append(buffer)

    def buffers(self) -> list[Buffer]:
        for each in self._outputs & self._of.keys():
            self._of[each].last = self._end
        distinct = {id(each): each for each in self._of.values() if each.size}
        return sorted(distinct.values(), key=lambda each: each.first)

    def _allocate(self, number: int, node: Node, made: Tensor, *, is_first: bool) -> None:
        shared = None
        if made not in self._outputs:
            shared = self._operand(node, made) if is_first else None
            shared = shared or self._reusable(made)
        self._put(made, shared or Buffer(bytes_of(made) or 0, number, number))

    def _put(self, tensor: Tensor, buffer: Buffer) -> None:
        self._of[tensor] = buffer
        buffer.tensors.append(tensor)
        self._uses[id(buffer)] += self._readers[tensor]

    def _operand(self, node: Node, made: Tensor) -> Buffer | None:
        """Return the buffer of an operand that the result takes; None for one of its own."""
        size, rules = bytes_of(made), self._rules
        if not size or node.op not in rules.views | rules.in_place:
            return None
        for each in node.inputs[:1] if node.op in rules.views else node.inputs:
            buffer = self._of.get(each) if each is not None and each not in self._inputs else None
            if buffer is None or buffer.size != size or each in self._outputs:
                continue
            if node.op in rules.views or (size > rules.least and self._is_last_use(each, buffer)):
                return buffer
        return None

    def _is_last_use(self, tensor: Tensor | None, buffer: Buffer) -> bool:
        if self._rules.reuses:
            return self._uses[id(buffer)] == 1
        # LiteRT counts all readers of the operand, and of the first value of its buffer.
        return all(self._readers[each] == 1 for each in (tensor, buffer.tensors[0]) if each)

    def _reusable(self, made: Tensor) -> Buffer | None:
        """Return the buffer freed last whose first value had this shape and width."""
        for place in range(len(self._freed) - 1, -1, -1):
            buffer = self._freed[place]
            if buffer.size and buffer.size == bytes_of(made) and buffer.tensors[-1].shape == made.shape:
                return self._freed.pop(place)
        return None


def bytes_of(tensor: Tensor) -> int | None:
    """Return the bytes of a tensor; None where its size is not known, or it is no tensor."""
    if not tensor.is_static or (bits := _bits(tensor.dtype)) is None:
        return None
    return (tensor.size * bits + 7) // 8


def unsized(graph: OperatorGraph) -> Iterator[str]:
    """Yield the names of node results whose size is not known."""
    for node in graph.nodes:
        yield from (each.name for each in node.outputs if each is not None and bytes_of(each) is None)


def _bits(dtype: str) -> int | None:
    if dtype == "bool":
        return 8
    if dtype == "string":
        return 64  # a pointer
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else None

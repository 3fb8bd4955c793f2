"""The operators of a TFLite file that ran in each step of a run, XNNPACK's included."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from onnxport.formats.graph import Node
from onnxport.formats.graph.delegation import divide
from onnxport.profiling import xnnpack
from onnxport.profiling.litert_events import DELEGATED, Step
from onnxport.profiling.tflite_graph import Number, TfliteOperators


@dataclass(frozen=True)
class Executed:
    """The nodes of a run.

    Attributes:
        nodes: all that ran; a node in a body has the values of the node that holds it.
        places: the place in `nodes` of each step's node.
        names: the name of each step.
    """

    nodes: tuple[Node, ...]
    places: tuple[int, ...]
    names: tuple[str, ...]


def match_steps(sequence: Sequence[Step], operators: TfliteOperators) -> Executed:
    """Find the node of each step of a run."""
    nodes = _main_nodes(sequence, operators)
    keys: dict[Hashable, int] = {}
    places, names = [], []
    for step in sequence:
        key = _key(step)
        if key not in nodes:
            nodes[key] = nodes[_key(_outermost(step))]
        places.append(keys.setdefault(key, len(keys)))
        own = nodes[key].name if step.holder is None else ""
        kernel = operators.nodes.get(_number(step)) if step.event.kind != DELEGATED else None
        names.append(own if kernel is None else kernel.name)
    return Executed(tuple(nodes[key] for key in keys), tuple(places), tuple(names))


def _main_nodes(sequence: Sequence[Step], operators: TfliteOperators) -> dict[Hashable, Node]:
    """Return the nodes of the main graph's steps; operators that XNNPACK fused into others are left out."""
    main = [step for step in sequence if step.holder is None]
    kernels = {_number(step) for step in sequence if step.event.kind != DELEGATED}
    numbers = _step_numbers(main, kernels, operators)
    kept = operators.keep(set(numbers.values()))
    nodes: dict[Hashable, Node] = {}
    following: Node | None = None
    for step in reversed(main):
        number = numbers.get(_key(step))
        node = None if number is None else kept.get(number)
        # XNNPACK inserts such an operator for the one behind it.
        if node is None and step.event.kind == DELEGATED and xnnpack.is_helper(step.event.tag):
            node = following
        following = node
        nodes[_key(step)] = node or Node(step.event.tag)
    return nodes


def _step_numbers(
    main: Sequence[Step], kernels: Collection[Number], operators: TfliteOperators
) -> Mapping[Hashable, Number]:
    """Return the operator of each step: by the event of a LiteRT kernel, by alignment for XNNPACK's operators."""
    delegated = [step for step in main if step.event.kind == DELEGATED]
    # The delegate runs partition after partition.
    order = {node: number for number, node in operators.nodes.items() if number[0] == 0}
    parts = divide(operators.main, {node for node, number in order.items() if number not in kernels})
    candidates = [order[node] for part in parts if part.delegated for node in part.nodes]
    ops = [operators.ops[each] for each in candidates]
    pairs = xnnpack.align([step.event.tag for step in delegated], ops)
    found = {_key(step): _number(step) for step in main if step.event.kind != DELEGATED}
    aligned = zip(delegated, pairs, strict=True)
    return found | {_key(step): candidates[pair] for step, pair in aligned if pair is not None}


def _outermost(step: Step) -> Step:
    while step.holder is not None:
        step = step.holder
    return step


def _key(step: Step) -> Hashable:
    """Return a key that a node has in every turn of a loop."""
    event = step.event
    return id(step) if step.holder is None else (event.tag, event.graph, event.node)


def _number(step: Step) -> Number:
    return step.event.graph, step.event.node

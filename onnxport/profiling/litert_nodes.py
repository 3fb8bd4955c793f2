"""Which of a TFLite file's operators ran in each step of a run, XNNPACK's among them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from onnxport.formats.graph import Node
from onnxport.profiling import xnnpack
from onnxport.profiling.delegate_order import delegated
from onnxport.profiling.litert_events import DELEGATED, Step
from onnxport.profiling.tflite_graph import Number, TfliteOperators


@dataclass(frozen=True)
class Ran:
    """Attributes:
    nodes: all that ran; a body's have the values of the node that holds it.
    places: of each step's node among these.
    names: of each step.
    """

    nodes: tuple[Node, ...]
    places: tuple[int, ...]
    names: tuple[str, ...]


def ran_in(sequence: Sequence[Step], known: TfliteOperators) -> Ran:
    """Who ran in the steps of a run."""
    nodes = _main(sequence, known)
    keys: dict[Hashable, int] = {}
    places, names = [], []
    for step in sequence:
        key = _key(step)
        if key not in nodes:
            nodes[key] = nodes[_key(_outermost(step))]
        places.append(keys.setdefault(key, len(keys)))
        own = nodes[key].name if step.holder is None else ""
        kernel = known.nodes.get(_number(step)) if step.event.kind != DELEGATED else None
        names.append(own if kernel is None else kernel.name)
    return Ran(tuple(nodes[key] for key in keys), tuple(places), tuple(names))


def _main(sequence: Sequence[Step], known: TfliteOperators) -> dict[Hashable, Node]:
    """The nodes of the main graph's steps, without those between them that XNNPACK fused."""
    main = [step for step in sequence if step.holder is None]
    found = _operators(main, {_number(step) for step in sequence if step.event.kind != DELEGATED}, known)
    kept = known.keep(set(found.values()))
    nodes: dict[Hashable, Node] = {}
    behind: Node | None = None
    for step in reversed(main):
        number = found.get(_key(step))
        node = None if number is None else kept.get(number)
        # What XNNPACK put in for the one behind it has that one's.
        if node is None and step.event.kind == DELEGATED and xnnpack.is_helper(step.event.tag):
            node = behind
        behind = node
        nodes[_key(step)] = node or Node(step.event.tag)
    return nodes


def _operators(main: Sequence[Step], own: set[Number], known: TfliteOperators) -> Mapping[Hashable, Number]:
    """The operator of each step: told by the event of LiteRT's own kernels, by alignment of XNNPACK's."""
    theirs = [step for step in main if step.event.kind == DELEGATED]
    given = delegated(
        known.main_nodes(), own, {each.name for each in (*known.main.constants, *known.main.inputs)}
    )
    pairs = xnnpack.paired([step.event.tag for step in theirs], [known.ops[each] for each in given])
    found = {_key(step): _number(step) for step in main if step.event.kind != DELEGATED}
    aligned = zip(theirs, pairs, strict=True)
    return found | {_key(step): given[pair] for step, pair in aligned if pair is not None}


def _outermost(step: Step) -> Step:
    while step.holder is not None:
        step = step.holder
    return step


def _key(step: Step) -> Hashable:
    """The same for the same node at every turn of a loop."""
    event = step.event
    return id(step) if step.holder is None else (event.tag, event.graph, event.node)


def _number(step: Step) -> Number:
    return step.event.graph, step.event.node

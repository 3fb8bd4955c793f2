"""Find the node that lets no change of the inputs through to an output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import OnnxportError
from onnxport.formats.model import Model
from onnxport.validate.answered_set import AnsweredSet
from onnxport.validate.noise_runs import Answers
from onnxport.validate.report import NodeRef

# Runs the model and returns intermediate values by name.
Tap = Callable[[Feeds, Sequence[str]], Answers]

_AT_A_TIME = 32  # values: a large model's do not all fit into memory
_ROUNDS = 4


def describe_dead_outputs(
    model: Model, outputs: Sequence[str], tap: Tap, sets: Sequence[AnsweredSet]
) -> Iterator[str]:
    """Name the nodes at which the inputs' changes end, for outputs that no set moves.

    Args:
        model: without functions.
        sets: those whose answers are kept are looked at.
    """
    for output in outputs:
        pair = _inputs_of_equal_answers(output, sets)
        if pair is None:
            continue
        with suppress(OnnxportError):  # a diagnosis must not end a run
            if (node := find_dead_node(model, output, tap, *pair)) is not None:
                named = f"{node.op} {node.name!r}" if node.name else f"{node.op} of {node.value!r}"
                yield f"{output!r} stays the same because {named} gives one result for all inputs that were fed"


def _inputs_of_equal_answers(output: str, sets: Sequence[AnsweredSet]) -> tuple[Feeds, Feeds] | None:
    """Return the inputs of two sets of one size to which an output is the same; None if there are none."""
    kept = [each.kept for each in sets if each.kept is not None and not each.adversarial]
    for place, (feeds, answers) in enumerate(kept):
        for others, given in kept[place + 1 :]:
            sizes = [{name: array.shape for name, array in each.items()} for each in (feeds, others)]
            if sizes[0] == sizes[1] and np.array_equal(answers[output], given[output]):
                return feeds, others
    return None


def find_dead_node(model: Model, output: str, tap: Tap, first: Feeds, second: Feeds) -> NodeRef | None:
    """Return the node nearest to an output whose inputs differ between two runs, and whose result does not.

    Args:
        model: without functions.
        first, second: inputs of the same shapes on which the output does not differ.

    Returns:
        None where no such node is among the values near the output.
    """
    value = next((each for each in model.graph.outputs if each.name == output), None)
    pending = [value] if value is not None else []
    inputs = {each.name: each for each in model.graph.inputs if each.name in first}
    varies = {name: _differ(first[name], second[name]) for name in inputs if name}
    for _ in range(_ROUNDS):
        nodes = _nodes_before(pending, model.graph)
        names = [
            each.name
            for node in nodes
            for each in node.inputs
            if each is not None and each.producer() is not None and each.name and each.name not in varies
        ]
        wanted = list(dict.fromkeys(names))[:_AT_A_TIME]
        if wanted:
            before, after = tap(first, wanted), tap(second, wanted)
            varies |= {name: _differ(before[name], after[name]) for name in wanted}
        for node in nodes:
            if any(varies.get(each.name or "", False) for each in node.inputs if each is not None):
                return NodeRef(name=node.name or "", op=node.op_type, value=node.outputs[0].name or "")
        pending = [each for node in nodes for each in node.inputs if each is not None]
        if not pending:
            break
    return None


def _nodes_before(values: Sequence[ir.Value], graph: ir.Graph) -> list[ir.Node]:
    """Return the nodes that make these values, each once."""
    found = {
        id(node): node for value in values if (node := value.producer()) is not None and node.graph is graph
    }
    return list(found.values())


def _differ(first: Array, second: Array) -> bool:
    return first.shape != second.shape or not np.array_equal(first, second, equal_nan=first.dtype.kind == "f")

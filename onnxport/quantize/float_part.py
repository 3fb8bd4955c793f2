"""The values that a candidate computes as the float model does, kept, so that only the rest of it is run.

A measurement that leaves all but a few units in float repeats the float model up to the first of them: half of a
network on average, and nearly all of it where the units lie close to its outputs, as the harmful ones often do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from onnxport.core.arrays import Array, Feeds
from onnxport.formats.model import Model
from onnxport.runtimes.ort.runtime import OrtRuntime

# Bytes of values that are kept, and places at which the graph can be cut.
_KEPT = 256 * 2**20
_PLACES = 24
_ROUNDING = ("QuantizeLinear", "DequantizeLinear")


class FloatPart:
    """Values of a float model on samples, alive behind some of its nodes.

    Args:
        model: the float model whose nodes have the names of the candidates' own.
        samples: inputs by name.
        places: names of nodes in the order of the graph; at most 24 are used.
    """

    def __init__(self, model: Model, samples: Sequence[Feeds], places: Sequence[str]) -> None:
        chosen = places[:: -(-len(places) // _PLACES) or 1]
        alive = list(dict.fromkeys(_alive_behind(model.graph, chosen)))
        self._values: tuple[dict[str, Array], ...] = tuple({} for _ in samples)
        if alive and samples:
            with OrtRuntime.of_model(model) as runtime:
                self._keep(runtime, samples, alive)

    def _keep(self, runtime: OrtRuntime, samples: Sequence[Feeds], alive: Sequence[str]) -> None:
        """Keep what fits, the last values first: what leads to them is the longest to compute."""
        taps = [name for name in alive if name in runtime.taps]
        for number, feeds in enumerate(samples):
            answers = runtime.run(feeds, taps=taps)
            if number == 0:
                left, kept = _KEPT // len(samples), []
                for name in reversed(taps):
                    left -= answers[name].nbytes
                    kept += [name] * (left >= 0)
                taps = kept
            self._values[number].update({name: answers[name] for name in taps})

    def values(self, sample: int) -> Mapping[str, Array]:
        """Return the kept values of a sample by name, for the inputs of `rest_of`."""
        return self._values[sample]

    def rest_of(self, candidate: Model) -> Model:
        """Return what of `candidate` does not follow from kept values; it is changed, and may be the result.

        Kept values become inputs. Outputs that nothing quantized reaches are left out, unless all are such.
        """
        graph = candidate.graph
        rounded = _find_rounded(graph)
        outputs = [value for value in graph.outputs if value in rounded]
        if not outputs or not self._values or not self._values[0]:
            return candidate
        needed, ends = _walk_back(outputs, rounded, self._values[0])
        graph.outputs[:] = outputs
        for value in ends:
            kept = self._values[0][value.name or ""]
            shape = value.shape if value.shape is not None else ir.Shape([None] * kept.ndim)
            given = ir.Value(
                name=value.name, type=ir.TensorType(ir.DataType.from_numpy(kept.dtype)), shape=shape
            )
            value.name = None
            value.replace_all_uses_with(given)
            graph.inputs.append(given)
        for node in reversed(list(graph)):
            if node not in needed:
                graph.remove(node, safe=True)
        for name, value in list(graph.initializers.items()):
            if not value.uses():
                del graph.initializers[name]
        graph.inputs[:] = [value for value in graph.inputs if value.uses()]
        return candidate


def _alive_behind(graph: ir.Graph, places: Iterable[str]) -> Iterator[str]:
    """Yield the values that are computed up to the places and read behind them; none with subgraphs."""
    order = {node: number for number, node in enumerate(graph)}
    positions = {node.name: number for node, number in order.items()}
    if any(isinstance(attribute.value, ir.Graph) for node in order for attribute in node.attributes.values()):
        return  # reads within a branch or a loop are not looked for
    made = [
        (number, max(order[user] for user, _ in value.uses()), value.name)
        for node, number in order.items()
        for value in node.outputs
        if value.name and value.uses() and not value.is_graph_output()
    ]
    for place in sorted(positions[name] for name in places if name in positions):
        yield from (name for first, last, name in made if first <= place < last)


def _find_rounded(graph: ir.Graph) -> set[ir.Value]:
    """Return all values that depend on one that is quantized."""
    found = set[ir.Value]()
    for node in graph:
        if node.op_type in _ROUNDING or any(value in found for value in node.inputs):
            found.update(node.outputs)
    return found


def _walk_back(
    outputs: Sequence[ir.Value], rounded: set[ir.Value], kept: Mapping[str, Array]
) -> tuple[set[ir.Node], list[ir.Value]]:
    """Return the nodes that `outputs` need, and the kept values where the walk from them ends."""
    needed, ends, stack = set[ir.Node](), dict[ir.Value, None](), list(outputs)
    while stack:
        value = stack.pop()
        node = value.producer()
        if value not in rounded and value.name in kept:
            ends[value] = None
        elif node is not None and node not in needed:
            needed.add(node)
            stack += [each for each in node.inputs if each is not None]
    return needed, list(ends)

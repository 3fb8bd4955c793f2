"""The limit on what a `.tflite` file may describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxport.formats.growth import Growth, OverlappingPartsError

# What an element counts as: it becomes an object, many times its bytes in the file.
_ELEMENT = 64


def check_growth(model: Any, size: int) -> None:
    """Raise OverlappingPartsError where the parts of a file of `size` bytes share their bytes too often."""
    growth = Growth(size)

    def count(text: bytes | None) -> None:
        growth.take(_ELEMENT + len(text or b""))

    for code in _each(model.OperatorCodes, model.OperatorCodesLength()):
        count(code.CustomCode())
    for entry in _each(model.Metadata, model.MetadataLength()):
        count(entry.Name())
    for signature in _each(model.SignatureDefs, model.SignatureDefsLength()):
        count(signature.SignatureKey())
        for end in (
            *_each(signature.Inputs, signature.InputsLength()),
            *_each(signature.Outputs, signature.OutputsLength()),
        ):
            count(end.Name())
    for graph in _each(model.Subgraphs, model.SubgraphsLength()):
        growth.take(_ELEMENT * (graph.InputsLength() + graph.OutputsLength()))
        for tensor in _each(graph.Tensors, graph.TensorsLength()):
            count(tensor.Name())
            growth.take(_ELEMENT * (tensor.ShapeLength() + tensor.ShapeSignatureLength()))
        for operator in _each(graph.Operators, graph.OperatorsLength()):
            growth.take(_ELEMENT * (1 + operator.InputsLength() + operator.OutputsLength()))


def _each(get: Callable[[int], Any], count: int) -> Any:
    return (get(index) for index in range(count))


def check_bodies(sizes: Sequence[int], bodies: Sequence[Sequence[int]], size: int) -> None:
    """Check that a walk through all operators of a file of `size` bytes, with those of bodies, ends soon.

    Args:
        sizes: the number of operators of each subgraph.
        bodies: the subgraphs that these operators run.

    Raises OverlappingPartsError where a subgraph runs itself, or bodies are run by too many others.
    """
    growth = Growth(size)
    totals: dict[int, int] = {}
    way = [(0, iter(bodies[0]))] if bodies else []
    while way:
        index, rest = way[-1]
        body = next(rest, None)
        if body is None:
            totals[index] = sizes[index] + sum(totals[each] for each in bodies[index])
            growth.take(_ELEMENT * totals[index])
            way.pop()
        elif any(body == each for each, _ in way):
            raise OverlappingPartsError("a loop's body is itself, or a part of itself")
        elif body not in totals:
            way.append((body, iter(bodies[body])))

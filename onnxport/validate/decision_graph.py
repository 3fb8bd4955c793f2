"""Find the comparisons of rounded numbers that decide elements of a graph's outputs, and replace them by inputs.

Comparisons count that reach an output element by element. `Equal(x, MaxPool(x))`, which finds the peaks of a map,
compares each number with its rivals in the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxport.formats.model import Model
from onnxport.samples.value_uses import constant

# Operators that move elements, and do not compute with them.
_MOVERS = frozenset("Identity Reshape Squeeze Transpose Unsqueeze".split())
# Operators from a comparison to an output that keep each element apart from the others.
_ELEMENTWISE = _MOVERS | frozenset("And Cast Mul Not Or Where".split())
_THRESHOLDS = frozenset("Greater GreaterOrEqual Less LessOrEqual".split())
# (operator, the pooled map's place among its inputs) -> its result for a peak.
_PEAK_TESTS = {
    ("Equal", 0): True,
    ("Equal", 1): True,
    ("GreaterOrEqual", 1): True,
    ("LessOrEqual", 0): True,
    ("Less", 1): False,
    ("Greater", 0): False,
}
_MOST = 3  # comparisons of one output: all combinations of their outcomes are run
_FLOATS = frozenset((ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE))


@dataclass(frozen=True)
class Window:
    """The neighbours with which a MaxPool of stride 1 compares an element.

    Attributes:
        sizes: per spatial axis.
        before: how many of them lie before the element, per spatial axis.
    """

    sizes: tuple[int, ...]
    before: tuple[int, ...]


@dataclass(frozen=True)
class Choice:
    """A comparison that decides elements of an output.

    Attributes:
        node, op: its index in the graph, and its operator.
        numbers: the values that it compares; of a peak, the map alone.
        window, pool: of a peak, and the index of its MaxPool; None for other comparisons.
        for_peak: the comparison's result for a peak.
    """

    node: int
    op: str
    numbers: tuple[ir.Value, ...]
    window: Window | None = None
    pool: int | None = None
    for_peak: bool = True


def outcome_name(number: int) -> str:
    """Return the name of the input that takes the place of a comparison."""
    return f"onnxport.outcome.{number}"


def find_choices(model: Model) -> dict[str, tuple[Choice, ...]]:
    """Map the outputs that hang on comparisons of rounded floats to these, where each can be replaced.

    Args:
        model: without functions.
    """
    places = {id(node): index for index, node in enumerate(model.graph)}
    found = {}
    for output in model.graph.outputs:
        nodes = list(_comparisons_before(output, places))
        choices = [choice for node in nodes if (choice := _choice(node, places)) is not None]
        if output.name and 0 < len(choices) == len(nodes) <= _MOST:
            found[output.name] = tuple(choices)
    return found


def force_outcomes(model: Model, choices: Sequence[Choice], ranks: Sequence[int]) -> Model:
    """Return a copy in which inputs take the place of comparisons, by `outcome_name`, bool[shape].

    Args:
        ranks: of the comparisons' results; of a peak, of the map, at whose places the outcomes are then.
    """
    copy = model.clone()
    nodes = list(copy.graph)
    for number, (choice, rank) in enumerate(zip(choices, ranks, strict=True)):
        shape = ir.Shape([f"{outcome_name(number)}.{axis}" for axis in range(rank)])
        outcome = ir.val(outcome_name(number), dtype=ir.DataType.BOOL, shape=shape)
        copy.graph.inputs.append(outcome)
        node, given = nodes[choice.node], outcome
        if choice.pool is not None:
            # The outcomes take the way of the pooled map, so that they are moved as it is.
            place, pool = _pooled(node)
            dtype = pool.outputs[0].dtype or ir.DataType.FLOAT
            pool.outputs[0].replace_all_uses_with(_cast(copy.graph, pool, outcome, dtype))
            given = _present(node.inputs[place])
        replace_value(node.outputs[0], _cast(copy.graph, node, given, ir.DataType.BOOL))
    return copy


def _comparisons_before(output: ir.Value, places: Mapping[int, int]) -> Iterator[ir.Node]:
    """Yield the comparisons of rounded floats that reach an output element by element."""
    pending, seen = [output], set[int]()
    while pending:
        node = pending.pop().producer()
        if node is None or id(node) in seen or node.domain or id(node) not in places:
            continue
        seen.add(id(node))
        if node.op_type in _THRESHOLDS or node.op_type == "Equal":
            if any(map(is_rounded, node.inputs)):
                yield node
        elif node.op_type in _ELEMENTWISE:
            pending += [value for value in node.inputs if value is not None]


def _choice(node: ir.Node, places: Mapping[int, int]) -> Choice | None:
    """Return the comparison of a node; None where its outcomes cannot be told or replaced."""
    number = places[id(node)]
    place, pool = _pooled(node) if any(map(_pool_behind, node.inputs)) else (0, None)
    if pool is None:
        compared = tuple(value for value in node.inputs if value is not None)
        return Choice(number, node.op_type, compared) if node.op_type in _THRESHOLDS else None
    own, window = _behind(node.inputs[1 - place]), _window(pool)
    test = _PEAK_TESTS.get((node.op_type, place))
    if window is None or test is None or own is None or own is not _behind(pool.inputs[0]):
        return None
    if not _is_read_once(node.inputs[place], pool) or id(pool) not in places:
        return None
    return Choice(number, node.op_type, (_present(pool.inputs[0]),), window, places[id(pool)], test)


def is_rounded(value: ir.Value | None) -> bool:
    """Return whether a value is a float that arithmetic gave."""
    source = _behind(value)
    while source is not None and (node := source.producer()) is not None and node.op_type == "MaxPool":
        source = _behind(node.inputs[0])
    if source is None or source.producer() is None or constant(source) is not None:
        return False
    return source.dtype is None or source.dtype in _FLOATS


def ends(value: ir.Value) -> tuple[float, ...]:
    """Return the numbers at which a Relu or Clip cuts a value off: these are exact."""
    source = _behind(value)
    node = None if source is None else source.producer()
    if node is None or node.op_type not in ("Relu", "Clip"):
        return ()
    if node.op_type == "Relu":
        return (0.0,)
    given = [node.attributes[name].as_float() for name in ("min", "max") if name in node.attributes]
    bounds = (constant(bound) for bound in node.inputs[1:])
    return (*given, *(float(bound.ravel()[0]) for bound in bounds if bound is not None and bound.size))


def _behind(value: ir.Value | None) -> ir.Value | None:
    """Return the value whose elements `value` has, moved."""
    while value is not None and (node := value.producer()) is not None and node.op_type in _MOVERS:
        value = node.inputs[0]
    return value


def _pool_behind(value: ir.Value | None) -> ir.Node | None:
    """Return the MaxPool whose result `value` is, maybe moved."""
    source = _behind(value)
    node = None if source is None else source.producer()
    return node if node is not None and node.op_type == "MaxPool" and not node.domain else None


def _pooled(node: ir.Node) -> tuple[int, ir.Node]:
    """Return the place and the MaxPool of a comparison's pooled operand."""
    return next((place, pool) for place, value in enumerate(node.inputs) if (pool := _pool_behind(value)))


def _is_read_once(value: ir.Value | None, pool: ir.Node) -> bool:
    """Return whether nothing but a comparison reads the result of `pool`, maybe moved."""
    while value is not None:
        node = value.producer()
        if len(value.uses()) != 1 or value.is_graph_output() or node is None:
            return False
        if node is pool:
            return True
        value = node.inputs[0]
    return False


def _window(pool: ir.Node) -> Window | None:
    """Return the window of a MaxPool that keeps the sizes of its input; None for any other."""
    sizes = pool.attributes["kernel_shape"].as_ints()
    axes = len(sizes)

    def read(name: str, default: int, count: int) -> Sequence[int]:
        return pool.attributes[name].as_ints() if name in pool.attributes else (default,) * count

    strides, dilations = read("strides", 1, axes), read("dilations", 1, axes)
    if {*strides, *dilations} != {1} or len(pool.outputs) > 1:
        return None
    auto = pool.attributes["auto_pad"].as_string() if "auto_pad" in pool.attributes else "NOTSET"
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return Window(tuple(sizes), tuple((size - (auto == "SAME_UPPER")) // 2 for size in sizes))
    pads = read("pads", 0, 2 * axes)
    before, after = tuple(pads[:axes]), tuple(pads[axes:])
    keeps = all(size == 1 + low + high for size, low, high in zip(sizes, before, after, strict=True))
    return Window(tuple(sizes), before) if keeps else None


def _present(value: ir.Value | None) -> ir.Value:
    assert value is not None, "a comparison has both operands"
    return value


def _cast(graph: ir.Graph, before: ir.Node, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    node = ir.node("Cast", [value], {"to": int(dtype)})
    node.outputs[0].name = node.name = f"{before.outputs[0].name}/{dtype.name.lower()}"
    graph.insert_before(before, node)
    return node.outputs[0]


def replace_value(value: ir.Value, other: ir.Value) -> None:
    """Let the readers of a value read another one, under the same name where it is an output."""
    other.type = other.type or value.type
    if value.is_graph_output():
        value.name, other.name = f"{value.name}/compared", value.name
    value.replace_all_uses_with(other, replace_graph_outputs=True)

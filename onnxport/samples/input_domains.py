"""The domains of a model's inputs at concrete sizes: what the graph demands of their values, set by set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.model import Model
from onnxport.samples.demands.backward import demand_before
from onnxport.samples.demands.demand import Demand
from onnxport.samples.demands.operators import POSITIVE, demand
from onnxport.samples.demands.parameters import Settings, propose, setting_inputs
from onnxport.samples.domain import Domain, Kind
from onnxport.samples.refusals import integer_inputs_of, parse_refusal
from onnxport.samples.shapes.analysis import Site, Sizes, infer
from onnxport.samples.shapes.fact import UNKNOWN, Fact, of_constant, size
from onnxport.samples.shapes.rules import RULES

# Operators between an input and the setting that it is, which only reshape it.
_RESHAPED = frozenset("Identity Cast Reshape Squeeze Unsqueeze Flatten".split())
# Domains that demands do not change: the kind says more.
_FINAL = frozenset({"table", "one-hot", "state"})


class InputDomains:
    """What the inputs of one model may hold.

    Args:
        graph: without functions; None where there is no graph to read.
        known: input name -> the domain by its name, its first uses and its runtime.

    Attributes:
        settings: the inputs that were found to be axes, sizes and the like.
        takes_nan: the inputs whose NaN the model tells from numbers.
    """

    def __init__(self, graph: Model | None, known: Mapping[str, Domain]) -> None:
        self._graph, self._known = graph, dict(known)
        self._inputs = {} if graph is None else {value.name or "": value for value in graph.graph.inputs}
        self._set_by_inputs = [] if graph is None else self._nodes_with_settings(graph.graph)
        self.settings: set[str] = set()
        self.takes_nan: set[str] = set()
        self._limits: dict[str, Demand] = {}
        self._has_special = True  # whether inputs that are compared with NaN and infinity hold these
        self._longest = 1
        self._constants: dict[int, Fact] = {}
        self._demanded: dict[tuple[tuple[str, tuple[int, ...]], ...], dict[str, Demand]] = {}

    def have(self, kind: Kind) -> bool:
        """Return whether any input has a domain of this kind."""
        return any(domain.kind == kind for domain in self._known.values())

    def at(self, shapes: Mapping[str, tuple[int, ...]], seed: int, index: int) -> dict[str, Domain]:
        """Return the domain of every input at these sizes for one set; settings are single values."""
        if self._graph is None:
            return self._known
        self._longest = max((size for shape in shapes.values() for size in shape), default=1)
        settings: dict[str, Array] = {}
        key = tuple(sorted(shapes.items()))
        demands = self._demanded.get(key)
        if demands is None or self._set_by_inputs:
            given = {name: Fact(tuple(map(size, shape))) for name, shape in shapes.items()}
            facts = self._infer(given)
            if self._set_by_inputs:
                settings, facts = self._choose_settings(given, facts, seed, index)
                self.settings |= settings.keys()
            demands = self._demanded[key] = self._demands(facts)
            self.takes_nan |= {name for name, each in demands.items() if each.structure == "special"}
        return {
            name: Domain("setting", setting=settings[name])
            if name in settings
            else _narrow(domain, demands.get(name), self._is_float(name))
            for name, domain in self._known.items()
        }

    def narrow(self, message: str) -> bool:
        """Narrow the inputs after a refusal by ONNX Runtime; return whether to try the same sizes again.

        Integer inputs behind a value that it names become narrower. NaN and infinities are left out for one more try.
        """
        refusal = parse_refusal(message)
        if refusal is None and message and self.takes_nan:
            self._has_special = not self._has_special
            self._demanded.clear()
            return not self._has_special
        if self._graph is None or refusal is None:
            return False
        before = dict(self._limits)
        for name in integer_inputs_of(self._graph, refusal) & self._known.keys():
            domain, known = self._known[name], self._limits.get(name, Demand())
            low, high = max(domain.low, known.low), min(max(domain.high, self._longest), known.high)
            if refusal.value > refusal.high:
                # As if the value grew with the input.
                high = max(low, min(high - 1, high * max(refusal.high, 0) // refusal.value))
            else:
                low = min(high, low + 1)
            self._limits[name] = Demand(low, high, is_index=True)
        self._demanded.clear()
        return self._limits != before

    def _infer(self, given: Mapping[str, Fact]) -> dict[int, Fact]:
        assert self._graph is not None
        return infer(self._graph.graph, RULES, given, Sizes({}), self._constants)

    def _is_float(self, name: str) -> bool:
        value = self._inputs.get(name)
        return value is not None and value.dtype is not None and value.dtype.is_floating_point()

    def _nodes_with_settings(self, graph: ir.Graph) -> list[ir.Node]:
        """Return the nodes whose settings come from inputs."""
        return [node for node in graph if any(map(self._reaches_input, setting_inputs(node)))]

    def _reaches_input(self, value: ir.Value | None) -> bool:
        if value is None or constant_tensor(value) is not None:
            return False
        if value.name in self._known and self._inputs.get(value.name or "") is value:
            return True
        node = value.producer()
        if node is None:
            return False
        if node.op_type == "Concat":
            return any(self._reaches_input(each) for each in node.inputs)
        return node.op_type in _RESHAPED and self._reaches_input(node.inputs[0])

    def _choose_settings(
        self, given: Mapping[str, Fact], facts: dict[int, Fact], seed: int, index: int
    ) -> tuple[dict[str, Array], dict[int, Fact]]:
        """Choose the values of the settings, node by node; return them with the facts that follow."""
        chosen: dict[str, Array] = {}
        for number, node in enumerate(self._set_by_inputs):
            random = np.random.Generator(np.random.PCG64([seed, index, number]))
            read = [self._fact(value, facts) for value in node.inputs]
            choice = propose(Settings(node, read, Sizes({}), random), index)
            before = len(chosen)
            for place, array in choice.items():
                self._assign(node.inputs[place], array, facts, chosen)
            if len(chosen) > before:
                facts = self._infer({**given, **{name: of_constant(array) for name, array in chosen.items()}})
        return chosen, facts

    def _assign(
        self, value: ir.Value | None, array: Array, facts: Mapping[int, Fact], chosen: dict[str, Array]
    ) -> None:
        """Give a value to the input, or the inputs, that it is made of."""
        if value is None:
            return
        name = value.name or ""
        if name in self._known and self._inputs.get(name) is value:
            shape = _shape(facts.get(id(value), UNKNOWN))
            if (
                name not in chosen
                and value.dtype is not None
                and shape is not None
                and math.prod(shape) == array.size
            ):
                chosen[name] = array.astype(value.dtype.numpy()).reshape(shape)
            return
        node = value.producer()
        if node is not None and node.op_type in _RESHAPED:
            self._assign(node.inputs[0], array, facts, chosen)
        elif node is not None and node.op_type == "Concat" and array.ndim == 1:
            start = 0
            for part in node.inputs:
                shape = _shape(self._fact(part, facts))
                if shape is None:
                    return
                self._assign(part, array[start : start + math.prod(shape)], facts, chosen)
                start += math.prod(shape)

    def _fact(self, value: ir.Value | None, facts: Mapping[int, Fact]) -> Fact:
        if value is None:
            return UNKNOWN
        return facts.get(id(value)) or self._constants.get(id(value), UNKNOWN)

    def _demands(self, facts: Mapping[int, Fact]) -> dict[str, Demand]:
        """Return what the nodes demand of each input, from the last node to the first."""
        assert self._graph is not None
        demands: dict[int, Demand] = {}
        for node in reversed(self._graph.graph):
            site = Site(node, [self._fact(value, facts) for value in node.inputs], Sizes({}))
            after = demands.get(id(node.outputs[0])) if node.outputs else None
            for index, value in enumerate(node.inputs):
                if value is None:
                    continue
                own = demand(site, index)
                if own is not None:
                    demands[id(value)] = replace(own, node=node.name or node.op_type).meet(
                        demands.get(id(value))
                    )
                carried = demand_before(site, after, index) if after is not None else None
                if carried is not None and not carried.is_empty:
                    demands[id(value)] = carried.meet(demands.get(id(value)))
        found = {name: demands[id(value)] for name, value in self._inputs.items() if id(value) in demands}
        if not self._has_special:
            found = {
                name: replace(each, structure="") if each.structure == "special" else each
                for name, each in found.items()
            }
        for name, limit in self._limits.items():
            found[name] = limit.meet(found.get(name))
        return found


def _shape(fact: Fact) -> tuple[int, ...] | None:
    if fact.dims is None or any(not isinstance(dim, np.ndarray) for dim in fact.dims):
        return None
    return tuple(int(dim[0]) for dim in fact.dims if isinstance(dim, np.ndarray))


def _narrow(domain: Domain, demand: Demand | None, is_float: bool) -> Domain:
    """Return the part of a domain that meets a demand."""
    if demand is None or domain.kind in _FINAL:
        return domain
    structured = replace(
        domain,
        nonzero=demand.nonzero,
        structure=demand.structure,
        axis=demand.axis,
        limits=demand.columns,
    )
    return _narrow_floats(structured, demand) if is_float else _narrow_integers(structured, demand)


def _narrow_floats(domain: Domain, demand: Demand) -> Domain:
    if domain.kind != "real" or domain.center:
        return domain
    low, high = demand.low, demand.high
    if domain.bounds is not None:
        low, high = max(low, domain.bounds[0]), min(high, domain.bounds[1])
    if low > high or (math.isinf(low) and math.isinf(high)):
        return domain
    if math.isinf(high) and low <= 1:
        return replace(domain, positive=True) if low <= POSITIVE else replace(domain, bounds=(low, low + 2))
    if math.isinf(low) or math.isinf(high):
        low, high = (low, low + 10) if math.isinf(high) else (high - 10, high)
    # A wide range demands nothing of ordinary numbers.
    return domain if low < -1000 and high > 1000 else replace(domain, positive=False, bounds=(low, high))


def _narrow_integers(domain: Domain, demand: Demand) -> Domain:
    low = -(2**62) if math.isinf(demand.low) else math.ceil(demand.low)
    high = 2**62 if math.isinf(demand.high) else math.floor(demand.high)
    if low > high:  # demands that contradict each other, of which ONNX Runtime names one
        return domain
    if demand.is_length:
        return replace(domain, kind="length", low=low, high=high)
    if demand.is_index and 1 < high < 2**62 and domain.kind != "boolean":
        return replace(
            domain, kind="position" if domain.kind == "position" else "integer", low=low, high=high
        )
    if domain.kind not in ("integer", "position", "length"):
        return domain
    if domain.kind == "length":
        return replace(domain, high=min(high, 2**31)) if high < 2**62 else domain
    low, high = max(low, domain.low), min(high, domain.high)
    return domain if low > high else replace(domain, low=low, high=high)

"""LSTM and GRU as their steps (ONNX LSTM-22, GRU-22).

    projected = x W' + (Wb + Rb)                                of all steps
    LSTM:  i, o, f, g = projected[t] + h R'                     c = f c + i g, h = o tanh(c)
    GRU:   z, r from projected[t] + h R', n = tanh(projected[t] + (r h) Rn')
           with linear_before_reset: n = tanh(projected[t] + r (h Rn' + Rbn))
           h = n - z n + z h

i, o, f, z and r pass a sigmoid, g a tanh. Layers with other activations, a clip, peepholes, lengths of their own for
each sequence, or more than STEPS steps stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.validate.translation.layouts.sizes import static_sizes
from onnxport.validate.translation.place import Place

STEPS = 128
_GATES = {"LSTM": 4, "GRU": 3}
_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_State = tuple[ir.Value | None, ir.Value | None]


def rewrite_recurrence(place: Place) -> None:
    """Rewrite a layer of known sizes."""
    data = place.input(0)
    shape = None if data is None else static_sizes(data)
    if data is None or shape is None or len(shape) != 3 or shape[0] > STEPS or not _is_plain(place):
        return
    steps, batch, _ = shape
    size = place.node.attributes.get_int("hidden_size", 0)
    sequences: list[ir.Value | None] = []
    hiddens: list[ir.Value | None] = []
    cells: list[ir.Value | None] = []
    for number, is_backwards in enumerate(_DIRECTIONS[_direction(place)]):
        layer = _Layer(place, number, size, batch)
        projected = layer.project(data)
        state, given = layer.initial(), {}
        for step in reversed(range(steps)) if is_backwards else range(steps):
            row = place.add("Gather", [projected, place.store(np.array(step, np.int64))], axis=0)
            state = layer.step(row, state)
            given[step] = layer.with_axis(state[0])
        parts = [given[step] for step in range(steps)]
        whole = place.add("Concat", parts, axis=0) if steps > 1 else parts[0]
        sequences.append(place.reshape(whole, (steps, 1, batch, size)))
        hiddens.append(layer.with_axis(state[0]))
        cells.append(layer.with_axis(state[1]) if state[1] is not None else None)
    results = zip(range(len(place.node.outputs)), (sequences, hiddens, cells), (1, 0, 0), strict=False)
    for number, each, axis in results:
        if place.node.outputs[number].name and None not in each:
            found = place.add("Concat", each, axis=axis) if len(each) > 1 else place.add("Identity", each)
            place.finish_result(number, found)


def _direction(place: Place) -> str:
    return place.node.attributes.get_string("direction", "forward")


def _is_plain(place: Place) -> bool:
    """Return whether a layer is one of those that `rewrite_recurrence` knows."""
    attributes, op = place.node.attributes, place.node.op_type
    count = len(_DIRECTIONS[_direction(place)])
    names = [each.lower() for each in attributes.get_strings("activations", ())]
    settings = ("clip", "activation_alpha", "activation_beta", "layout", "input_forget")
    is_known = tuple(names) in ((), _ACTIVATIONS[op] * count)
    weights = [place.input(each) for each in (1, 2, 3)]
    return (
        is_known
        and not any(name in attributes and attributes[name].value for name in settings)
        and all(each is None or place.is_constant(each) for each in weights)
        and place.input(4) is None
        and (op == "GRU" or place.input(7) is None)
    )


class _Layer:
    """One direction of a layer."""

    def __init__(self, place: Place, number: int, size: int, batch: int) -> None:
        self._place, self._number, self._size, self._batch = place, number, size, batch
        self._gates = _GATES[place.node.op_type]
        self._weight, self._recurrence, self._bias = (self._own(each) for each in (1, 2, 3))
        self._is_linear = bool(place.node.attributes.get_int("linear_before_reset", 0))

    def _own(self, number: int) -> ir.Value | None:
        """Return this direction's part of an operand."""
        value = self._place.input(number)
        if value is None:
            return None
        return self._place.add("Gather", [value, self._place.store(np.array(self._number, np.int64))], axis=0)

    def _rows(self, value: ir.Value | None, first: int, count: int) -> ir.Value:
        """Return the constants of some gates."""
        places = self._place.integers(range(first * self._size, (first + count) * self._size))
        return self._place.add("Gather", [value, places], axis=0)

    def initial(self) -> _State:
        hidden, cell = (self._state(5), self._state(6) if self._gates == 4 else None)
        return hidden, cell

    def _state(self, number: int) -> ir.Value | None:
        """Return an initial state; None for zeros."""
        return None if self._place.is_zero(self._place.input(number)) else self._own(number)

    def project(self, data: ir.Value) -> ir.Value:
        add = self._place.add
        found = add("MatMul", [data, add("Transpose", [self._weight], perm=[1, 0])])
        if self._bias is None:
            return found
        ours, theirs = (
            self._rows(self._bias, 0, self._gates),
            self._rows(self._bias, self._gates, self._gates),
        )
        if self._is_linear:  # that of the candidate stands beside its product with the state
            outside = np.repeat(np.array([1, 1, 0], np.float32), self._size)
            theirs = add("Mul", [theirs, self._place.store(outside)])
        return add("Add", [found, add("Add", [ours, theirs])])

    def step(self, row: ir.Value, state: _State) -> _State:
        return self._lstm(row, state) if self._gates == 4 else (self._gru(row, state[0]), None)

    def _lstm(self, row: ir.Value, state: _State) -> _State:
        add, (hidden, cell) = self._place.add, state
        total = row if hidden is None else add("Add", [row, self._product(hidden, 0, 4)])
        i, o, f, g = self._split(total, 4)
        memory = add("Mul", [add("Sigmoid", [i]), add("Tanh", [g])])
        if cell is not None:
            memory = add("Add", [add("Mul", [add("Sigmoid", [f]), cell]), memory])
        return add("Mul", [add("Sigmoid", [o]), add("Tanh", [memory])]), memory

    def _gru(self, row: ir.Value, hidden: ir.Value | None) -> ir.Value:
        add, gates = self._place.add, self._split(row, 3)
        if hidden is not None:
            past = self._split(self._product(hidden, 0, 2), 2)
            gates = [*(add("Add", pair) for pair in zip(gates, past, strict=False)), gates[2]]
        z, r = (add("Sigmoid", [each]) for each in gates[:2])
        n = gates[2]
        if self._is_linear and self._bias is not None:
            inner = self._rows(self._bias, 5, 1)
            inner = inner if hidden is None else add("Add", [self._product(hidden, 2, 1), inner])
            n = add("Add", [n, add("Mul", [r, inner])])
        elif hidden is not None and self._is_linear:
            n = add("Add", [n, add("Mul", [r, self._product(hidden, 2, 1)])])
        elif hidden is not None:
            n = add("Add", [n, self._product(add("Mul", [r, hidden]), 2, 1)])
        n = add("Tanh", [n])
        found = add("Sub", [n, add("Mul", [z, n])])
        return found if hidden is None else add("Add", [found, add("Mul", [z, hidden])])

    def _product(self, hidden: ir.Value, first: int, count: int) -> ir.Value:
        matrix = self._place.add("Transpose", [self._rows(self._recurrence, first, count)], perm=[1, 0])
        return self._place.add("MatMul", [hidden, matrix])

    def _split(self, total: ir.Value, count: int) -> Sequence[ir.Value]:
        ends = [self._place.integers([each * self._size]) for each in range(count + 1)]
        axis = self._place.integers([1])
        return [self._place.add("Slice", [total, *ends[each : each + 2], axis]) for each in range(count)]

    def with_axis(self, value: ir.Value | None) -> ir.Value:
        assert value is not None
        return self._place.reshape(value, (1, self._batch, self._size))

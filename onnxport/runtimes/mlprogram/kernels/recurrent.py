"""Recurrent layers: lstm, gru and rnn over sequences of shape <steps, batch, features>."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxport.core.arrays import Array
from onnxport.runtimes.mlprogram.kernels.registry import Call, Flag, Undefined, kernel

Activation = Callable[[Array], Array]

_ACTIVATIONS: dict[str, Activation] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: np.asarray(1 / (1 + np.exp(-x))),
    "tanh": np.tanh,
}
# Activations whose parameters the recurrent operators' documentation does not give.
_UNDOCUMENTED: dict[str, Activation] = {
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "sigmoid_hard": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "scaled_tanh": lambda x: np.asarray(1.7159 * np.tanh(2 / 3 * x)),
}


@kernel("lstm")
def lstm(
    x: Array,
    initial_h: Array,
    initial_c: Array,
    weight_ih: Array,
    weight_hh: Array,
    call: Call,
    bias: Array | None = None,
    peephole: Array | None = None,
    weight_ih_back: Array | None = None,
    weight_hh_back: Array | None = None,
    bias_back: Array | None = None,
    peephole_back: Array | None = None,
    direction: str = "forward",
    output_sequence: Flag = False,
    recurrent_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    activation: str = "tanh",
    clip: Array | None = None,
) -> tuple[Array, Array, Array]:
    named = [_activation(name, call) for name in (recurrent_activation, cell_activation, activation)]
    limit = None if clip is None else float(clip)
    hidden = weight_hh.shape[1]
    first = (weight_ih, weight_hh, bias, peephole)
    if direction != "bidirectional":
        runs = [_lstm(x, initial_h, initial_c, first, named, limit, direction == "reverse", call.strict)]
    else:
        second = (weight_ih_back, weight_hh_back, bias_back, peephole_back)
        runs = [
            _lstm(x, initial_h[:, :hidden], initial_c[:, :hidden], first, named, limit, False, call.strict),
            _lstm(x, initial_h[:, hidden:], initial_c[:, hidden:], second, named, limit, True, call.strict),
        ]
    steps, last_h, last_c = (np.concatenate(each, axis=-1) for each in zip(*runs, strict=True))
    return (steps if output_sequence else last_h[None]), last_h, last_c


def _lstm(
    x: Array,
    h: Array,
    c: Array,
    weights: tuple[Any, ...],
    activations: list[Activation],
    clip: float | None,
    reverse: bool,
    strict: bool,
) -> tuple[Array, Array, Array]:
    """Run one direction; return the hidden state of every step, in the input's order, and the last states.

    The gates' order is input, forget, output, cell. Peepholes are Graves': the input and forget gates see the cell
    state before the step, the output gate the one after it.
    """
    weight_ih, weight_hh, bias, peephole = weights
    gate, cell, out = activations
    peep = np.split(peephole, 3) if peephole is not None else None
    projected = _project(x, weight_ih, bias)
    recurrent = weight_hh.T
    found = np.empty((*x.shape[:2], h.shape[1]), np.float32)
    for step in _order(len(x), reverse):
        i, f, o, z = np.split(projected[step] + h @ recurrent, 4, axis=1)
        if peep:
            i, f = i + peep[0] * c, f + peep[1] * c
        before, z = z, z if clip is None else np.clip(z, -clip, clip)
        c = gate(f) * c + gate(i) * cell(z)
        if clip is not None and strict and max(np.abs(before).max(), np.abs(c).max()) > clip:
            raise Undefined(
                f"lstm beyond its clip of {clip}: whether it clips gate or state is not documented"
            )
        h = gate(o + peep[2] * c if peep else o) * out(c)
        found[step] = h
    return found, h, c


@kernel("gru")
def gru(
    x: Array,
    initial_h: Array,
    weight_ih: Array,
    weight_hh: Array,
    call: Call,
    bias: Array | None = None,
    direction: str = "forward",
    output_sequence: Flag = False,
    recurrent_activation: str = "sigmoid",
    activation: str = "tanh",
    reset_after: Flag = False,
    input_bias: Array | None = None,
) -> tuple[Array, Array]:
    """Run a GRU; the gates' order is reset, output, update.

    With `input_bias`, `bias` belongs to the products with the hidden state. `reset_after` applies the reset gate to
    that product, else to the hidden state.
    """
    if call.strict and reset_after:
        raise Undefined(
            "gru with reset_after: its documentation says `before`, and coremltools' own test of it fails"
        )
    gate, out = _activation(recurrent_activation, call), _activation(activation, call)
    hidden = weight_hh.shape[1]
    projected = _project(x, weight_ih, input_bias)
    add = np.zeros(3 * hidden, np.float32) if bias is None else bias
    w_r, w_o, w_z = (each.T for each in np.split(weight_hh, 3))
    b_r, b_o, b_z = np.split(add, 3)
    h = initial_h
    found = np.empty((*x.shape[:2], hidden), np.float32)
    for step in _order(len(x), direction == "reverse"):
        x_r, x_o, x_z = np.split(projected[step], 3, axis=1)
        r, z = gate(x_r + h @ w_r + b_r), gate(x_z + h @ w_z + b_z)
        o = out(x_o + (r * (h @ w_o + b_o) if reset_after else (r * h) @ w_o + b_o))
        h = (1 - z) * o + z * h
        found[step] = h
    return (found if output_sequence else h[None]), h


@kernel("rnn")
def rnn(
    x: Array,
    initial_h: Array,
    weight_ih: Array,
    weight_hh: Array,
    call: Call,
    bias: Array | None = None,
    direction: str = "forward",
    output_sequence: Flag = False,
    activation: str = "tanh",
) -> tuple[Array, Array]:
    out = _activation(activation, call)
    projected = _project(x, weight_ih, bias)
    recurrent = weight_hh.T
    h = initial_h
    found = np.empty((*x.shape[:2], weight_hh.shape[1]), np.float32)
    for step in _order(len(x), direction == "reverse"):
        h = found[step] = out(projected[step] + h @ recurrent)
    return (found if output_sequence else h[None]), h


def _project(x: Array, weight: Array, bias: Array | None) -> Array:
    """Multiply the input by every gate's weights, all steps in one product."""
    y = x @ weight.T
    return y if bias is None else np.asarray(y + bias)


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _activation(name: str, call: Call) -> Activation:
    name = name.lower()
    if name in _UNDOCUMENTED:
        if call.strict:
            raise Undefined(f"{call.operation.type} with {name}, whose slope and offset are not documented")
        return _UNDOCUMENTED[name]
    return _ACTIVATIONS[name]

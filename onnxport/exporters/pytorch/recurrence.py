"""Keep LSTM, GRU and RNN layers whole: torch.export would unroll them over the example's steps.

During capture, torch's recurrent kernels become operators of our own, and these become ONNX's LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NAMESPACE = "onnxport"


class NotOneOperator(Exception):
    """A recurrent layer without an ONNX operator."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why, self.fix = why, fix


@dataclass(frozen=True)
class Cell:
    """One kind of recurrent layer."""

    onnx: str  # ONNX's operator
    gates: tuple[int, ...]  # ONNX's order of the gates, by their number in torch's
    states: int = 1  # how many it carries: LSTM has a cell beside the hidden state
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of ONNX's operator
    activation: str = ""  # of a plain RNN


# torch's name of the kernel to the cell. Torch has an LSTM's gates as i, f, g, o and a GRU's as r, z, n; ONNX as
# i, o, f, c and z, r, h. Torch multiplies the reset gate behind the recurrent product, bias included.
CELLS: Mapping[str, Cell] = {
    "lstm": Cell("LSTM", (0, 3, 1, 2), states=2),
    "gru": Cell("GRU", (1, 0, 2), attributes={"linear_before_reset": 1}),
    "rnn_tanh": Cell("RNN", (0,), activation="Tanh"),
    "rnn_relu": Cell("RNN", (0,), activation="Relu"),
}

_SCHEMA = (
    "(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, bool bidirectional, "
    "bool batch_first) -> Tensor[]"
)


def _register(kernel: str, cell: Cell) -> torch._ops.OpOverload:
    """Register the operator `onnxport::<kernel>` with its shapes."""

    def compute(
        input: torch.Tensor,
        hx: Sequence[torch.Tensor],
        params: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[torch.Tensor]:
        states = tuple(hx) if cell.states > 1 else hx[0]
        answer = getattr(torch, kernel)(
            input, states, params, has_biases, num_layers, 0.0, False, bidirectional, batch_first
        )
        return [each.clone() for each in answer]

    def shapes(
        input: torch.Tensor,
        hx: Sequence[torch.Tensor],
        params: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[torch.Tensor]:
        width = hx[0].shape[2] * (2 if bidirectional else 1)
        return [input.new_empty(*input.shape[:2], width), *(torch.empty_like(state) for state in hx)]

    name = f"{_NAMESPACE}::{kernel}"
    torch.library.define(name, _SCHEMA)
    torch.library.impl(name, "CPU", compute)
    torch.library.register_fake(name, shapes)
    operator: torch._ops.OpOverload = getattr(getattr(torch.ops, _NAMESPACE), kernel).default
    return operator


_OPERATORS = {kernel: _register(kernel, cell) for kernel, cell in CELLS.items()}


class KeepWhole(TorchFunctionMode):
    """Keeps recurrent layers from being unrolled while entered; NotOneOperator for those that ONNX lacks."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        cell = CELLS.get(name)
        if name == _PACKING:
            raise NotOneOperator(
                "packed sequences have sizes that depend on the data",
                "run the recurrent layer on the padded batch and mask what it gives",
            )
        if cell is None or func != getattr(torch, name) or kwargs or len(args) != _ARGUMENTS:
            return func(*args, **(kwargs or {}))
        input, hx, params, has_biases, num_layers, _, _, bidirectional, batch_first = args
        if cell.states > 1 and hx[0].shape[2] != hx[1].shape[2]:
            raise NotOneOperator(
                "ONNX's LSTM has no projections (proj_size)", "multiply behind a layer without them"
            )
        states = list(hx) if cell.states > 1 else [hx]
        return tuple(
            _OPERATORS[name](input, states, list(params), has_biases, num_layers, bidirectional, batch_first)
        )


_PACKING = "_pack_padded_sequence"
_ARGUMENTS = 9


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return torch.onnx's custom_translation_table for the operators."""
    return {operator: _translation(CELLS[kernel]) for kernel, operator in _OPERATORS.items()}


def _translation(cell: Cell) -> Callable[..., Any]:
    def translate(
        input: Any,
        hx: Sequence[Any],
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        from onnxscript import opset18 as op

        directions = 2 if bidirectional else 1
        each = 4 if has_biases else 2
        values = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
        last: list[list[Any]] = [[] for _ in range(cell.states)]
        for layer in range(num_layers):
            first = layer * directions
            sets = [params[(first + d) * each : (first + d + 1) * each] for d in range(directions)]
            answers = _layer(
                op, cell, values, [_rows(op, state, first, directions) for state in hx], sets, hx
            )
            # [steps, directions, batch, hidden] -> [steps, batch, directions * hidden]
            values = op.Reshape(
                op.Transpose(answers[0], perm=[0, 2, 1, 3]), op.Constant(value_ints=[0, 0, -1])
            )
            for state, answer in zip(last, answers[1:], strict=True):
                state.append(answer)
        values = op.Transpose(values, perm=[1, 0, 2]) if batch_first else values
        return [values, *(op.Concat(*state, axis=0) if len(state) > 1 else state[0] for state in last)]

    return translate


def _layer(
    op: Any, cell: Cell, values: Any, states: Any, sets: Sequence[Sequence[Any]], hx: Sequence[Any]
) -> Any:
    """Translate one layer, both directions: weights [directions, gates * hidden, width] in ONNX's gate order."""
    packed = [_stack(op, [_reorder_gates(op, cell, weights[which]) for weights in sets]) for which in (0, 1)]
    bias = None
    if len(sets[0]) > 2:
        rows = [
            op.Concat(_reorder_gates(op, cell, w[2]), _reorder_gates(op, cell, w[3]), axis=0) for w in sets
        ]
        bias = _stack(op, rows)
    attributes = dict(cell.attributes)
    if cell.activation:
        attributes["activations"] = [cell.activation] * len(sets)
    return getattr(op, cell.onnx)(
        values,
        *packed,
        bias,
        None,
        *states,
        direction="bidirectional" if len(sets) > 1 else "forward",
        hidden_size=int(hx[0].shape[2]),
        **attributes,
    )


def _rows(op: Any, state: Any, first: int, count: int) -> Any:
    ints = [op.Constant(value_ints=[number]) for number in (first, first + count, 0)]
    return op.Slice(state, *ints)


def _reorder_gates(op: Any, cell: Cell, weight: Any) -> Any:
    """Return a weight or bias with its gates in ONNX's order."""
    if len(cell.gates) == 1:
        return weight
    parts = op.Split(weight, axis=0, num_outputs=len(cell.gates))
    return op.Concat(*(parts[gate] for gate in cell.gates), axis=0)


def _stack(op: Any, weights: Sequence[Any]) -> Any:
    axes = op.Constant(value_ints=[0])
    stacked = [op.Unsqueeze(weight, axes) for weight in weights]
    return op.Concat(*stacked, axis=0) if len(stacked) > 1 else stacked[0]

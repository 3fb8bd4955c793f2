"""The memory plan of a model, as data."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from onnxport.core.tabular import Tabular


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodePlan(_Record):
    """A node of the plan.

    Attributes:
        macs: multiply-accumulate operations of convolutions, matrix products and recurrences; 0 for others.
        read, written: bytes of its activations.
        weights: bytes of its constants.
        live: bytes of all buffers that hold values while it runs.
    """

    name: str
    operator: str
    macs: int
    read: int
    weights: int
    written: int
    live: int


class BufferPlan(_Record):
    """A part of the arena.

    Attributes:
        names: the values that take it in turn: views, and results that overwrite an operand.
        offset, size: bytes.
        first, last: the positions in `nodes` from which to which it holds a value.
    """

    names: tuple[str, ...]
    offset: int
    size: int
    first: int
    last: int


class MemoryPlan(Tabular, _Record):
    """The activations of one run, in the order of the file's nodes; without scratch memory of kernels.

    Attributes:
        runtime: whose rules of sharing apply, "LiteRT" or "ONNX Runtime".
        inputs, outputs: bytes of the model's inputs and outputs.
        holds_inputs: whether the arena holds the inputs, too; else they are the caller's.
        weights: bytes of all constants.
        macs: those of all nodes; a loop's body counts once.
        peak: most bytes that hold values at one time; `peak_node` is where.
        arena: bytes of one block with every buffer at its offset; at least `peak`.
        unsized: values whose size is not known before a run, or that are no tensors; they count as nothing.
    """

    runtime: str
    inputs: int
    outputs: int
    holds_inputs: bool
    weights: int
    macs: int
    peak: int
    peak_node: str
    arena: int
    unsized: tuple[str, ...]
    nodes: tuple[NodePlan, ...]
    buffers: tuple[BufferPlan, ...]

    _about: ClassVar = ("runtime", "peak", "peak_node", "arena", "macs")
    _table: ClassVar = "nodes"
    _columns: ClassVar = ("name", "operator", "live", "read", "written", "weights", "macs")

"""QDQ networks: a float network whose every result goes to a grid and back, of a width of its own where wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxport.formats.model import Model
from tests.conformance.tflite import Array
from tests.converters.tflite.models import model_of, run_onnx

# ONNX Runtime's quantizer gives the results of these the grid of their operand.
_MOVES = frozenset(
    "Reshape Transpose Slice Gather Pad Split Squeeze DepthToSpace Resize MaxPool Flatten Tile Expand".split()
)


@dataclass
class Network:
    """A float network that becomes a QDQ one: every float that it computes goes to a grid and back.

    Attributes:
        kind: of the grids: "u8", "s8", "s16" (symmetric) or "u16" (with a zero point of its own).
        kinds: tensors whose grids are of another kind.
        on_operands_grid: results that get the grid of what they are made of, beside those that are only moved.
        steps: each tensor's step, once it is quantized.
    """

    random: np.random.Generator
    kind: str = "u8"
    kinds: dict[str, str] = field(default_factory=dict)
    on_operands_grid: set[str] = field(default_factory=set)
    steps: dict[str, float] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    feeds: dict[str, Array] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)

    def input(self, *shape: int, positive: bool = False) -> str:
        array = self.random.standard_normal(shape).astype(np.float32)
        name = f"x{len(self.feeds)}"
        self.feeds[name] = np.abs(array) + np.float32(0.1) if positive else array
        return name

    def node(
        self, op: str, *inputs: str, outputs: int = 1, stays_float: bool = False, **attributes: Any
    ) -> str:
        """Adds a node; what it gives stays float where it `stays_float`."""
        names = [f"{'float.' if stays_float else ''}{op}{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{op}{len(self.nodes)}", **attributes))
        return names[0]

    def relu_in_the_grid(self, name: str) -> str:
        """As ONNX Runtime's quantizer leaves a Relu out: the grid begins at zero."""
        self.folded.add(name)
        return name

    def constant(self, array: Array) -> str:
        self.constants[f"c{len(self.constants)}"] = array
        return f"c{len(self.constants) - 1}"

    def weights(self, *shape: int, axis: int | None = 0, zero_point: int = 0) -> str:
        """int8 weights behind a DequantizeLinear, with one scale per channel along `axis`."""
        numbers = self.random.integers(-127, 128, shape).astype(np.int8)
        scale = (
            np.float32(0.01)
            if axis is None
            else self.random.uniform(0.005, 0.02, shape[axis]).astype(np.float32)
        )
        points = np.full(np.shape(scale), zero_point, np.int8)
        inputs = [self.constant(each) for each in (numbers, np.asarray(scale), points)]
        return self.node("DequantizeLinear", *inputs, **({} if axis is None else {"axis": axis}))

    def quantized(self) -> tuple[Model, float]:
        """The QDQ model, and the largest step in it, which is how far roundings that fall otherwise may reach."""
        initializers = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        made = [
            *self.feeds,
            *(name for node in self.nodes if node.op_type != "DequantizeLinear" for name in node.output),
        ]
        computed = run_onnx(
            model_of(self.nodes, self.feeds, initializers, outputs=made[len(self.feeds) :]), self.feeds
        )
        computed |= self.feeds
        nodes: list[onnx.NodeProto] = []
        renamed: dict[str, str] = {}
        grids: dict[str, tuple[Array, Array]] = {}
        step = 0.0

        def add_pair(name: str) -> None:
            nonlocal step
            scale, point = grids[name]
            self.steps[name] = float(scale)
            step = max(step, float(scale))
            initializers.extend(
                numpy_helper.from_array(array, f"{name}.{what}")
                for what, array in (("s", scale), ("z", point))
            )
            grid = [f"{name}.s", f"{name}.z"]
            nodes.append(helper.make_node("QuantizeLinear", [name, *grid], [f"{name}.q"], f"{name}.Q"))
            nodes.append(
                helper.make_node("DequantizeLinear", [f"{name}.q", *grid], [f"{name}.dq"], f"{name}.DQ")
            )
            renamed[name] = f"{name}.dq"

        for name in self.feeds:
            grids[name] = self._grid(name, computed[name])
            add_pair(name)
        for node in self.nodes:
            for name in node.output:
                moves = node.op_type in _MOVES or name in self.on_operands_grid
                if moves and self.kind_of(name) == self.kind_of(node.input[0]):
                    grids[name] = grids[node.input[0]]
                elif node.op_type != "DequantizeLinear":
                    grids[name] = self._grid(name, computed[name])
            for index, name in enumerate(node.input):
                node.input[index] = renamed.get(name, name)
            nodes.append(node)
            if node.op_type != "DequantizeLinear" and not node.output[0].startswith("float"):
                for name in node.output:
                    add_pair(name)
        return model_of(nodes, self.feeds, initializers), step

    def kind_of(self, name: str) -> str:
        return self.kinds.get(name, self.kind)

    def _grid(self, name: str, array: Array) -> tuple[Array, Array]:
        low, high = min(float(array.min()), 0.0) * 0.9, max(float(array.max()), 1e-3) * 0.9
        if name in self.folded:
            low = 0.0
        span, kind = high - low, self.kind_of(name)
        if kind == "s16":
            return np.array(max(-low, high) / 32767, np.float32), np.array(0, np.int16)
        if kind == "u16":
            return np.array(span / 65535, np.float32), np.array(round(-low * 65535 / span), np.uint16)
        scale = np.array(span / 255, np.float32)
        if kind == "s8":
            return scale, np.array(round(-128 - low * 255 / span), np.int8)
        return scale, np.array(round(-low * 255 / span), np.uint8)

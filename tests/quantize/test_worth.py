"""Why a result is hardly faster: every rule of the table, on what ONNX Runtime makes of a model that shows it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from onnxport.quantize.latency import Speedup, Times
from onnxport.quantize.speedup import (
    RULES,
    UNKNOWN,
    UNSURE,
    Facts,
    Finding,
    find_reasons,
    measure_effect,
    read_facts,
)
from onnxport.validate.precision import onnx as graphs
from onnxport.validate.precision.graphs import TypedGraph
from tests.cli.sandbox import DIGITS

FAST = "x86_64 avx2 avx512f avx512_vnni"
SLOW = "x86_64 avx2"
LARGE = 50.0  # ms


class Net:
    """A graph written node by node; each method returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, values: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def rounded(self, x: str, dtype: type[np.generic], point: int = 0) -> str:
        """Through integers and back."""
        grid = self.constant(np.float32(0.05)), self.constant(dtype(point))  # type: ignore[call-arg]
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *grid), *grid)

    def weight(self, *shape: int) -> str:
        """int8 and de-quantized."""
        numbers = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
        return self.add("DequantizeLinear", self.constant(numbers), self.constant(np.float32(0.01)))

    def graphs(self, y: str, folder: Path) -> tuple[TypedGraph, TypedGraph]:
        """It, and what ONNX Runtime makes of it, x being [1, 8, 16, 16] and y of any shape."""
        ports = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16]),
            helper.make_tensor_value_info(y, TensorProto.FLOAT, None),
        ]
        graph = helper.make_graph(self.nodes, "net", ports[:1], ports[1:], list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(model, folder / "made.onnx")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(folder / "optimized.onnx")
        options.log_severity_level = 4
        onnxruntime.InferenceSession(folder / "made.onnx", options, providers=["CPUExecutionProvider"])
        return graphs.read_typed_graph(folder / "made.onnx"), graphs.read_typed_graph(
            folder / "optimized.onnx"
        )


def quantized(dtype: type[np.generic], point: int) -> tuple[Net, str]:
    """Three convolutions with Relu behind each."""
    net = Net()
    x = net.rounded("x", dtype, point)
    for _ in range(3):
        y = net.add("Conv", x, net.weight(8, 8, 3, 3), pads=[1, 1, 1, 1])
        x = net.rounded(net.add("Relu", y), dtype, point)
    return net, x


def told(net: Net, y: str, folder: Path, words: str = FAST, before: float = LARGE) -> list[Finding]:
    return list(find_reasons(read_facts(*net.graphs(y, folder), before, words)))


def test_what_is_fused_throughout_has_no_reason(tmp_path: Path) -> None:
    assert told(*quantized(np.uint8, 0), tmp_path) == []


def test_a_cpu_without_fast_integers_is_named(tmp_path: Path) -> None:
    (found,) = told(*quantized(np.uint8, 0), tmp_path, words=SLOW)
    assert "no VNNI, AMX or dot product" in found.reason


def test_signed_activations_on_x86_want_to_be_unsigned(tmp_path: Path) -> None:
    (found,) = told(*quantized(np.int8, 0), tmp_path)
    assert "activations are signed" in found.reason
    assert found.setting == "--activations u8"


def test_signed_activations_are_fine_on_arm(tmp_path: Path) -> None:
    found = told(*quantized(np.int8, 0), tmp_path, words="aarch64 asimd asimddp")
    assert not any("signed" in each.reason for each in found)


def test_activations_of_16_bits_have_no_kernels(tmp_path: Path) -> None:
    (found,) = told(*quantized(np.uint16, 0), tmp_path)
    assert "16-bit activations: 3 of them compute in float between" in found.reason


def test_conversions_that_nothing_was_fused_with_are_counted_and_what_they_surround_is_named(
    tmp_path: Path,
) -> None:
    net, x = Net(), "x"
    for _ in range(4):
        x = net.rounded(net.add("Sin", x), np.uint8, 128)
    (found,) = told(net, x, tmp_path)
    assert "7 of 12 nodes only convert between integers and floats" in found.reason
    assert "3 Sin" in found.reason
    assert found.setting == "--exclude Sin"


def test_conversions_before_outputs_are_no_reason(tmp_path: Path) -> None:
    """A detector has many outputs, and what computes them last is in float."""
    net, x = quantized(np.uint8, 0)
    parts = [
        net.add("Sigmoid", net.rounded(net.add("Conv", x, net.weight(4, 8, 1, 1)), np.uint8))
        for _ in range(4)
    ]
    assert told(net, net.add("Concat", *parts, axis=1), tmp_path) == []


def test_products_that_stayed_in_float_are_counted(tmp_path: Path) -> None:
    net, x = quantized(np.uint8, 0)
    for _ in range(4):
        weight = net.constant(np.ones((8, 8, 3, 3), np.float32))
        x = net.add("Relu", net.add("Conv", x, weight, pads=[1, 1, 1, 1]))
    (found,) = told(net, x, tmp_path)
    assert found.reason == "4 of 7 convolutions and matrix products compute in float"


def test_ranges_that_are_measured_at_every_run_are_counted(tmp_path: Path) -> None:
    net, x = Net(), "x"
    for _ in range(2):
        number = len(net.nodes)
        outputs = [f"{name}{number}" for name in ("q", "s", "z")]
        net.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], outputs))
        weight = net.constant(np.ones((16, 16), np.int8))
        product = net.add("MatMulInteger", outputs[0], weight, outputs[2])
        x = net.add("Mul", net.add("Cast", product, to=TensorProto.FLOAT), outputs[1])
    (found,) = told(net, x, tmp_path)
    assert "measured in every run (nodes: 2)" in found.reason
    assert "--int8 --calib DIR" in found.setting


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other CPUs have kernels for them")
def test_floats_of_16_bits_that_are_widened_are_called_so(tmp_path: Path) -> None:
    net = Net()
    x = net.add("Cast", "x", to=TensorProto.FLOAT16)
    for _ in range(3):
        x = net.add("Sin", net.add("MatMul", x, net.constant(np.ones((16, 16), np.float16))))
    (found,) = told(net, net.add("Cast", x, to=TensorProto.FLOAT), tmp_path)
    assert "no kernels of 16-bit floats" in found.reason
    assert "computes in float32 (casts on the way: 1)" in found.reason


def test_weights_alone_are_unpacked_at_every_run(tmp_path: Path) -> None:
    net = Net()
    y = net.add("Conv", net.add("Conv", "x", net.weight(8, 8, 3, 3)), net.weight(4, 8, 3, 3))
    (found,) = told(net, y, tmp_path)
    assert found.reason.startswith("2 weights are dequantized in every run")


def test_a_small_model_is_called_small(tmp_path: Path) -> None:
    (found,) = told(*quantized(np.uint8, 0), tmp_path, before=0.05)
    assert "the model is small" in found.reason


def test_every_rule_is_met_in_a_test_of_this_file() -> None:
    """A rule that is added to the table has to be shown on a graph here."""
    tests = [name for name in globals() if name.startswith("test_")]
    assert len(RULES) == len(tests) - len(
        {
            "test_what_is_fused_throughout_has_no_reason",
            "test_signed_activations_are_fine_on_arm",
            "test_every_rule_is_met_in_a_test_of_this_file",
            "test_without_a_known_reason_that_is_said",
            "test_a_result_that_pays_is_asked_for_no_reason",
            "test_conversions_before_outputs_are_no_reason",
            "test_a_cpu_without_fast_integers_is_named_for_tflite_too",
            "test_what_is_slower_in_every_round_is_not_put_down_to_other_programs",
            "test_facts_of_a_foreign_machine_need_no_graph",
        }
    )


@pytest.mark.parametrize(
    ("high", "load", "expected"), [(1.3, 0.5, UNKNOWN), (2.4, 0.5, UNSURE), (1.3, 7.0, UNSURE)]
)
def test_without_a_known_reason_that_is_said(
    high: float, load: float, expected: Finding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, y = quantized(np.uint8, 0)
    net.graphs(y, tmp_path)
    timed_as(monkeypatch, Speedup(1.2, 1.1, high, 0.96), load)
    assert measure_effect(tmp_path, tmp_path / "made.onnx", {}, tmp_path, FAST).findings == (expected,)


def test_what_is_slower_in_every_round_is_not_put_down_to_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_as(monkeypatch, Speedup(1 / 42, 1 / 67, 1 / 27, 0.96), load=7.0)
    assert measure_effect(tmp_path, tmp_path / "model.tflite", {}, tmp_path, FAST).findings == ()


@pytest.mark.parametrize(
    ("precision", "words", "is_named"),
    [("int8-dynamic", SLOW, True), ("int8-dynamic", FAST, False), ("int8-weights", SLOW, False)],
)
def test_a_cpu_without_fast_integers_is_named_for_tflite_too(
    precision: str, words: str, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made.tflite"
    onnxport.convert_model(DIGITS, "tflite", made, precision=precision, validate=False, latency=False)
    timed_as(monkeypatch, Speedup(0.9, 0.8, 0.95, 0.96))
    found = measure_effect(tmp_path, made, {}, tmp_path, words).findings
    assert any("no VNNI, AMX or dot product" in each.reason for each in found) == is_named


def test_a_result_that_pays_is_asked_for_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, y = quantized(np.int8, 0)
    net.graphs(y, tmp_path)
    timed_as(monkeypatch, Speedup(2.9, 2.7, 3.1, 0.96))
    assert measure_effect(tmp_path, tmp_path / "made.onnx", {}, tmp_path, FAST).findings == ()


def timed_as(monkeypatch: pytest.MonkeyPatch, found: Speedup, load: float = 0.0) -> None:
    """Has the clock say what it never says for sure."""
    times = Times((LARGE / 1000,), (LARGE / 1000 / found.value,), "", load)
    monkeypatch.setattr("onnxport.quantize.speedup.measure_latency", lambda *given: times)
    monkeypatch.setattr("onnxport.quantize.speedup.speedup", lambda times: found)


def test_facts_of_a_foreign_machine_need_no_graph() -> None:
    assert find_reasons(Facts(frozenset(("riscv64",)), 3, 1000.0)) == ()

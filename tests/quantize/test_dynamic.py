"""`--dynamic`: products, LSTM layers and tables on 8 bits, which ONNX Runtime computes in integers."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxport
from fixtures import minilm, models
from onnxport.core.errors import CannotConvertError
from tests import exact

RANDOM = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(
    path: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, Array],
    x: tuple[Any, ...],
    stale: dict[str, tuple[int, ...]] | None = None,
    functions: tuple[onnx.FunctionProto, ...] = (),
) -> Path:
    """Saves `nodes` from `x` to `y`; `stale` are shapes that the file declares of values inside."""
    domains = [helper.make_opsetid("", 17), *(helper.make_opsetid(each.domain, 1) for each in functions)]
    graph = helper.make_graph(
        nodes,
        "dynamic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", *[None] * (len(x) - 1)])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
        value_info=[
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (stale or {}).items()
        ],
    )
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=domains, functions=functions), path)
    return path


def session(path: Path, optimized: Path | None = None) -> Any:
    options = exact.options() if optimized is None else onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if optimized is not None:
        options.optimized_model_filepath = os.fspath(optimized)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def operators(path: Path, folder: Path) -> collections.Counter[str]:
    """What ONNX Runtime runs."""
    session(path, folder / "optimized.onnx")
    return collections.Counter(each.op_type for each in onnx.load(folder / "optimized.onnx").graph.node)


def sqnr(path: Path, other: Path, feeds: list[dict[str, Array]]) -> float:
    """dB over all feeds; what the attention mask leaves out is not counted."""
    first, second = session(path), session(other)
    signal = noise = 0.0
    for feed in feeds:
        wanted, found = first.run(None, feed)[0], second.run(None, feed)[0]
        kept = feed["attention_mask"].astype(bool) if "attention_mask" in feed else slice(None)
        signal += float(np.square(wanted[kept], dtype=np.float64).sum())
        noise += float(np.square(wanted[kept] - found[kept], dtype=np.float64).sum())
    return 10 * float(np.log10(signal / noise))


def quantized(source: Path, **options: Any) -> Path:
    output = source.with_name("small.onnx")
    onnxport.quantize_model(source, "dynamic", output=output, validate=False, **options)
    return output


def test_products_are_computed_in_integers(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["g"]),
        helper.make_node("Gemm", ["g", "b", "c"], ["y"], transB=1),
    ]
    source = model(
        tmp_path / "m.onnx", nodes, {"a": normal(64, 96), "b": normal(40, 96), "c": normal(40)}, ("N", 64)
    )
    output = quantized(source)
    onnx.checker.check_model(output, full_check=True)
    assert operators(output, tmp_path)["DynamicQuantizeMatMul"] == 2
    assert sqnr(source, output, [{"x": normal(7, 64)}]) > 30


def test_what_several_products_read_is_quantized_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", name], [f"h{name}"]) for name in "abc"]
    nodes.append(helper.make_node("Sum", ["ha", "hb", "hc"], ["y"]))
    source = model(tmp_path / "m.onnx", nodes, {name: normal(64, 32) for name in "abc"}, ("N", 5, 64))
    found = operators(quantized(source), tmp_path)
    assert found["DynamicQuantizeLinear"] == 1
    assert found["MatMulIntegerToFloat"] == 3


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lstm_layers_are_computed_in_integers(direction: str, tmp_path: Path) -> None:
    count = 2 if direction == "bidirectional" else 1
    weights = {"w": normal(count, 128, 40) / 6, "r": normal(count, 128, 32) / 6, "b": normal(count, 256) / 4}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=32, direction=direction),
    ]
    source = model(tmp_path / "m.onnx", nodes, weights, ("N", 2, 40))
    output = quantized(source)
    assert operators(output, tmp_path)["DynamicQuantizeLSTM"] == 1
    assert sqnr(source, output, [{"x": normal(6, 2, 40)}]) > 28


def test_shapes_that_the_file_declares_wrongly_do_no_harm(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    weights = {"a": normal(64, 96), "b": normal(96, 40)}
    source = model(tmp_path / "m.onnx", nodes, weights, ("N", 64), stale={"h": (1, 3)})
    output = quantized(source)
    onnx.checker.check_model(output, full_check=True)
    assert sqnr(source, output, [{"x": normal(7, 64)}]) > 30


def test_functions_as_dynamo_writes_them_are_looked_into(tmp_path: Path) -> None:
    body = [
        helper.make_node("Transpose", ["weight"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["input", "t"], ["p"]),
        helper.make_node("Add", ["p", "bias"], ["output"]),
    ]
    opsets = [helper.make_opsetid("", 17)]
    linear = helper.make_function(
        "pkg.torch", "Linear", ["input", "weight", "bias"], ["output"], body, opsets
    )
    nodes = [helper.make_node("Linear", ["x", "w", "b"], ["y"], domain="pkg.torch")]
    weights = {"w": normal(40, 64), "b": normal(40)}
    source = model(tmp_path / "m.onnx", nodes, weights, ("N", 64), functions=(linear,))
    output = quantized(source)
    assert operators(output, tmp_path)["DynamicQuantizeMatMul"] == 1
    assert sqnr(source, output, [{"x": normal(7, 64)}]) > 30


def test_seven_bits_cannot_overflow_sixteen(tmp_path: Path) -> None:
    source = model(
        tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "a"], ["y"])], {"a": normal(64, 96)}, ("N", 64)
    )
    output = quantized(source, reduce_range=True)
    numbers = [
        numpy_helper.to_array(each) for each in onnx.load(output).graph.initializer if each.data_type == 3
    ]
    pairs = max(int(np.abs(each.astype(int)).max()) for each in numbers) * 255 * 2
    assert pairs < 2**15
    assert sqnr(source, output, [{"x": normal(7, 64)}]) > 28


def test_convolutions_are_said_to_stay(tmp_path: Path) -> None:
    source = model(
        tmp_path / "m.onnx",
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        {"w": normal(8, 16, 3, 3)},
        ("N", 16, 9, 9),
    )
    with pytest.raises(CannotConvertError, match="1 of Conv, which is slower on integers; --int8-weights"):
        quantized(source)


@pytest.mark.real
def test_a_text_encoder_is_at_least_as_near_as_with_onnx_runtimes_own(tmp_path: Path) -> None:
    source = models.path(minilm.KEY)
    ours, theirs = tmp_path / "ours.onnx", tmp_path / "theirs.onnx"
    onnxport.quantize_model(source, "dynamic", output=ours, validate=False)
    script = (
        "import sys; from onnxruntime.quantization import quantize_dynamic; quantize_dynamic(*sys.argv[1:])"
    )
    subprocess.run(
        [sys.executable, "-c", script, source, theirs], check=True, capture_output=True, cwd=tmp_path
    )
    texts = minilm.sentences()
    feeds = [minilm.feeds(texts[start : start + 8]) for start in range(0, 32, 8)]
    assert sqnr(source, ours, feeds) > sqnr(source, theirs, feeds) + 3  # 17.5 and 10.8 dB over all sentences
    assert ours.stat().st_size < 1.02 * theirs.stat().st_size
    found = operators(ours, tmp_path)
    assert found["MatMulIntegerToFloat"] + found["DynamicQuantizeMatMul"] == 36

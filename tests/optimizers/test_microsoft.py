"""Rewritings of com.microsoft's operators give the answers of ONNX Runtime's own kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.optimizers.rewritten import Array, differences, model_of, refusal, rewritten, run

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: type = np.int32) -> Array:
    return RANDOM.integers(low, high, shape).astype(dtype)


@dataclass
class Case:
    """A node with its inputs in order (None is an absent one); those from `fed` on are constants.

    Attributes:
        outputs: which of its outputs are asked for, of float32 unless said otherwise.
    """

    op: str
    inputs: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    fed: int = 1
    outputs: tuple[Any, ...] = (np.float32,)
    domain: str = "com.microsoft"
    atol: float = 1e-5

    def __str__(self) -> str:
        return f"{self.op} {self.attributes}"


X = floats(2, 5, 8)
IMAGE, KERNEL = floats(2, 4, 7, 7), floats(6, 4, 3, 3)
TABLE = floats(11, 8)
WEIGHTS, BIAS = floats(8, 24) / 2, floats(24) / 4
PADDED = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
HEADS = {"num_heads": 2}
COS, SIN = np.cos(floats(9, 2)), np.sin(floats(9, 2))
POSITIONS = np.tile(np.arange(5), (2, 1))

CASES = [
    Case("Gelu", [X]),
    Case("BiasGelu", [X, floats(8)]),
    Case("FastGelu", [X]),
    Case("FastGelu", [X, floats(8)]),
    Case("QuickGelu", [X]),
    Case("QuickGelu", [X], {"alpha": 1.0}),
    Case("FusedConv", [IMAGE, KERNEL, floats(6)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    Case("FusedConv", [IMAGE, KERNEL], {"activation": "LeakyRelu", "activation_params": [0.2]}),
    Case(
        "FusedConv",
        [IMAGE, KERNEL],
        {"activation": "Clip", "activation_params": [-1.0, 2.0], "strides": [2, 2]},
    ),
    Case("FusedConv", [IMAGE, KERNEL], {"activation": "HardSigmoid", "activation_params": [0.1, 0.6]}),
    Case("FusedConv", [IMAGE, KERNEL, floats(6), floats(2, 6, 5, 5)], {"activation": "Tanh"}),
    Case(
        "FusedGemm",
        [floats(3, 4), floats(5, 4), floats(5)],
        {"activation": "Relu", "transB": 1, "alpha": 0.5},
    ),
    Case("FusedGemm", [floats(3, 4), floats(4, 5)], {"activation": "LeakyRelu", "activation_alpha": 0.3}),
    Case("FusedMatMul", [floats(2, 3, 4, 5), floats(2, 3, 4, 6)], {"transA": 1, "alpha": 0.125}, fed=2),
    Case("FusedMatMul", [floats(2, 3, 4, 5), floats(2, 3, 6, 5)], {"transB": 1}),
    Case("FusedMatMul", [floats(3, 4), floats(4, 5)], {"alpha": 2.0}),
    Case("FusedMatMul", [floats(4, 3, 5), floats(3, 5, 6)], {"transBatchA": 1}),
    Case("FusedMatMul", [floats(4, 3, 5), floats(3, 4, 6)], {"transBatchA": 1, "transA": 1}),
    Case("FusedMatMul", [floats(3, 4, 5), floats(5, 3, 6)], {"transBatchB": 1}),
    Case("TransposeMatMul", [floats(4, 3), floats(4, 6)], {"transA": 1}),
    Case("SkipLayerNormalization", [X, floats(2, 5, 8), floats(8), floats(8)], fed=2),
    Case(
        "SkipLayerNormalization",
        [X, floats(2, 5, 8), floats(8), floats(8), floats(8)],
        {"epsilon": 1e-3},
        fed=2,
        outputs=(np.float32, None, None, np.float32),
    ),
    Case("SkipLayerNormalization", [X, floats(5, 8), floats(8)]),
    Case("SkipSimplifiedLayerNormalization", [X, floats(2, 5, 8), floats(8)], {"epsilon": 1e-5}, fed=2),
    Case(
        "SkipSimplifiedLayerNormalization",
        [X, floats(2, 5, 8), floats(8), floats(8)],
        fed=2,
        outputs=(np.float32, None, None, np.float32),
    ),
    Case("SimplifiedLayerNormalization", [X, floats(8)], {"axis": -1, "epsilon": 1e-5}, domain=""),
    Case(
        "EmbedLayerNormalization",
        [
            integers(0, 11, 2, 5),
            integers(0, 2, 2, 5),
            TABLE,
            floats(6, 8),
            floats(2, 8),
            floats(8),
            floats(8),
            PADDED,
        ],
        fed=2,
        outputs=(np.float32, np.int32),
    ),
    Case(
        "EmbedLayerNormalization",
        [integers(0, 11, 2, 5), None, TABLE, floats(6, 8), None, floats(8), floats(8)],
        outputs=(np.float32, np.int32, np.float32),
    ),
    Case("Attention", [X, WEIGHTS, BIAS], HEADS),
    Case("Attention", [X, WEIGHTS, BIAS, PADDED], HEADS),
    Case("Attention", [X, WEIGHTS, BIAS, np.array([5, 2], np.int32)], HEADS),
    Case("Attention", [X, WEIGHTS, BIAS, integers(0, 2, 2, 5, 5)], {**HEADS, "scale": 0.3}),
    Case("Attention", [X, WEIGHTS, BIAS], {**HEADS, "unidirectional": 1}),
    Case(
        "Attention",
        [X, WEIGHTS, BIAS, None, floats(2, 2, 2, 3, 4)],
        {**HEADS, "unidirectional": 1},
        outputs=(np.float32, np.float32),
    ),
    Case("Attention", [X, WEIGHTS, BIAS, None, None, floats(2, 2, 5, 5)], HEADS),
    Case("Attention", [X, floats(8, 20), floats(20)], {**HEADS, "qkv_hidden_sizes": [8, 8, 4]}),
    Case("MultiHeadAttention", [X, floats(2, 6, 8), floats(2, 6, 8)], HEADS, fed=3),
    Case("MultiHeadAttention", [X, floats(2, 5, 8), floats(2, 5, 8), BIAS, PADDED], HEADS, fed=3),
    Case(
        "MultiHeadAttention",
        [X, floats(2, 5, 8), floats(2, 5, 12), None, None, floats(1, 2, 5, 5)],
        HEADS,
        fed=3,
    ),
    Case("MultiHeadAttention", [X, floats(2, 2, 6, 4), floats(2, 2, 6, 4)], HEADS, fed=3),
    Case("MultiHeadAttention", [X, X[:, ::-1], X + 1], {**HEADS, "unidirectional": 1}, fed=3),
    Case(
        "MultiHeadAttention",
        [X, X + 1, X - 1, None, None, None, floats(2, 2, 3, 4), floats(2, 2, 3, 4)],
        HEADS,
        fed=3,
        outputs=(np.float32, np.float32, np.float32),
    ),
    Case(
        "RotaryEmbedding", [floats(2, 5, 8), POSITIONS, COS, SIN], {"num_heads": 2, "rotary_embedding_dim": 4}
    ),
    Case("RotaryEmbedding", [floats(2, 5, 8), POSITIONS, COS, SIN]),
    Case("RotaryEmbedding", [floats(2, 3, 5, 4), POSITIONS, COS, SIN], {"interleaved": 1}),
    Case("RotaryEmbedding", [floats(2, 3, 5, 4), np.array([3]), COS, SIN]),
    Case(
        "RotaryEmbedding",
        [floats(2, 3, 5, 6), POSITIONS, COS, SIN],
        {"num_heads": 3, "rotary_embedding_dim": 4, "interleaved": 1},
    ),
    Case(
        "DynamicQuantizeMatMul",
        [floats(5, 8), integers(-128, 128, 8, 6, dtype=np.int8), np.float32(0.02), np.int8(3), floats(6)],
        fed=2,  # with constant weights its quantization is taken out: tests/validate/test_float_arithmetic.py
    ),
    Case(
        "DynamicQuantizeMatMul",
        [X, integers(0, 256, 8, 6, dtype=np.uint8), np.abs(floats(6)), integers(0, 256, 6, dtype=np.uint8)],
        fed=2,
    ),
    Case(
        "MatMulIntegerToFloat",
        [
            integers(0, 256, 5, 8, dtype=np.uint8),
            integers(-128, 128, 8, 6, dtype=np.int8),
            np.float32(0.1),
            np.float32(0.02),
            np.uint8(120),
            np.int8(0),
            floats(6),
        ],
        atol=1e-4,
    ),
    Case(
        "MatMulNBits",
        [floats(3, 48), integers(0, 256, 7, 3, 8, dtype=np.uint8), np.abs(floats(21))],
        {"N": 7, "K": 48, "bits": 4, "block_size": 16},
        atol=1e-3,
    ),
    Case(
        "MatMulNBits",
        [
            floats(2, 3, 40),
            integers(0, 256, 7, 3, 8, dtype=np.uint8),
            np.abs(floats(21)),
            integers(0, 256, 14, dtype=np.uint8),
        ],
        {"N": 7, "K": 40, "bits": 4, "block_size": 16},
        atol=1e-3,
    ),
    Case(
        "MatMulNBits",
        [
            floats(3, 64),
            integers(0, 256, 7, 2, 32, dtype=np.uint8),
            np.abs(floats(14)),
            integers(0, 256, 14, dtype=np.uint8),
            None,
            floats(7),
        ],
        {"N": 7, "K": 64, "bits": 8, "block_size": 32},
        atol=1e-2,
    ),
    Case(
        "GatherBlockQuantized",
        [integers(0, 256, 9, 16, dtype=np.uint8), np.array([[1, 2], [8, 0]]), np.abs(floats(9, 2)), None],
        {"block_size": 16, "bits": 4, "quantize_axis": 1},
        fed=-1,
    ),
    Case(
        "NhwcMaxPool",
        [integers(-128, 128, 1, 6, 6, 3, dtype=np.int8)],
        {"kernel_shape": [2, 2]},
        outputs=(np.int8,),
    ),
    Case("Trilu", [X, np.array(1)], {"upper": 0}),
    Case("ExpandDims", [X, np.array([1], np.int32).reshape(())]),
    Case("CDist", [floats(3, 4), floats(5, 4)], {"metric": "euclidean"}),
    Case("CDist", [floats(3, 4), floats(5, 4)]),
    Case("Pad", [floats(3, 4), np.array([0, 1, 2, 1])]),
    Case("QuantizeLinear", [X, np.float32(0.1), np.uint16(30000)], outputs=(np.uint16,)),
    Case("DequantizeLinear", [integers(0, 60000, 4, dtype=np.uint16), np.float32(0.1), np.uint16(30000)]),
]


def made(case: Case) -> tuple[Any, dict[str, Array]]:
    """Return the case as a model, and its inputs."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    given = {name: np.asarray(x) for name, x in zip(names, case.inputs, strict=True) if x is not None}
    fed = names[1:2] if case.fed < 0 else names[: case.fed]
    outputs = {f"y{i}": dtype for i, dtype in enumerate(case.outputs) if dtype is not None}
    listed = [f"y{i}" if dtype is not None else "" for i, dtype in enumerate(case.outputs)]
    node = helper.make_node(case.op, names, listed, domain=case.domain, **case.attributes)
    feeds = {name: x for name, x in given.items() if name in fed}
    constants = {name: x for name, x in given.items() if name not in fed}
    return model_of(node, feeds, constants, outputs, is_open=False), feeds


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rewriting_matches_onnx_runtime(case: Case) -> None:
    model, feeds = made(case)
    expected = run(model, feeds)
    result = rewritten(model)
    assert not refusal(result)
    assert not differences(expected, run(result, feeds), atol=case.atol)

"""A quantized file is proven to be its source, or the node is named at which it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxport.validate.translation.proof import Proof, prove
from tests.validate.translation.models import CODES, MATRIX_CODES, MIDDLE, STEPS, pictures, quantized, source

Array = np.ndarray[Any, np.dtype[Any]]


def proof(more: dict[str, Array] | None = None, **options: bool) -> Proof:
    normalized = options.pop("normalized", False)
    return prove(source(normalized=normalized), quantized(more=more, **options), pictures())


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_a_right_file_is_proven_whatever_is_folded_and_fused(normalized: bool, relu: bool) -> None:
    found = proof(normalized=normalized, relu=relu)
    assert list(found.findings) == []
    assert found.weights == 2
    assert len(found.coverages) == 2
    # Every code of the input and of the convolution's result, on two pictures.
    assert found.arithmetic.compared == 2 * (36 + 2 * 25)


def _changed(codes: Array, place: tuple[int, ...], by: int) -> Array:
    changed = codes.copy()
    changed[place] += by
    return changed


FAULTS: dict[str, tuple[dict[str, Array], str]] = {
    "a weight three steps off": ({"w.codes": _changed(CODES, (0, 0, 1, 0), 3)}, "Conv 'conv'"),
    "a weight with another sign": ({"w.codes": _changed(CODES, (1, 0, 1, 0), -128)}, "Conv 'conv'"),
    "channels swapped": ({"w.codes": CODES[::-1].copy()}, "Conv 'conv'"),
    "steps swapped": ({"w.scale": STEPS[::-1].copy()}, "Conv 'conv'"),
    "a bias dropped": ({"b.codes": np.zeros(2, np.int32)}, "Conv 'conv'"),
    "another step on the way back": ({"c.back": np.array(MIDDLE * 1.02, np.float32)}, "Conv 'conv'"),
    "Relu lost": ({"c.zero": np.array(8, np.uint8)}, "Conv 'conv'"),
    "a matrix transposed": ({"m.codes": MATRIX_CODES.T.copy()}, "MatMul 'product'"),
    "a weight's zero point": ({"m.zero": np.array(1, np.int8)}, "MatMul 'product'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_node(name: str) -> None:
    more, node = FAULTS[name]
    found = proof(more)
    assert not found.is_complete
    assert {each.node for each in found.findings} == {node}


@pytest.mark.parametrize("name", ["channels swapped", "another step on the way back", "a matrix transposed"])
def test_what_no_quantizer_does_is_a_fault(name: str) -> None:
    assert proof(FAULTS[name][0]).faults


def test_a_weight_that_another_rounding_explains_is_a_doubt_alone() -> None:
    found = proof({"w.codes": _changed(CODES, (0, 0, 1, 0), 1)})
    assert [each.kind for each in found.findings] == ["doubt"]
    assert "1 of 8 weights are more than half a step from the source's, up to 0.9 steps" in str(found)


def test_what_a_grid_cuts_off_is_told_and_is_no_fault() -> None:
    more = {"x.scale": 1 / 256, "b.scale": STEPS / 256, "b.codes": [0.5 * 64 * 256, -0.25 * 32 * 256]}
    dtypes = {"b.codes": np.int32}
    found = proof({name: np.array(each, dtypes.get(name, np.float32)) for name, each in more.items()})
    first = next(each for each in found.coverages if each.grid.codes.name == "x.q")
    values = np.concatenate([each["x"].ravel() for each in pictures()])
    # The grid ends at -0.5 and 127/256; what lies within half a step of an end rounds to it.
    beyond = (values < -128.5 / 256) | (values > 127.5 / 256)
    assert first.cut == np.count_nonzero(beyond)
    assert not found.faults
    assert "cut off values fed" in str(
        prove(source(), quantized(), [{"x": np.full((1, 1, 6, 6), 1.5, np.float32)}])
    )


def test_another_operator_is_not_passed_silently() -> None:
    other = quantized()
    next(node for node in other.graph if node.op_type == "GlobalAveragePool").op_type = "GlobalMaxPool"
    found = prove(source(), other, pictures())
    assert not found.is_complete
    assert "the source has GlobalAveragePool 'pool' here" in str(found)


def test_another_attribute_is_named() -> None:
    other = quantized()
    conv = next(node for node in other.graph if node.op_type == "Conv")
    conv.attributes["pads"] = ir.AttrInt64s("pads", [0, 0, 0, 0])
    assert prove(source(), other, pictures()).is_complete
    conv.attributes["dilations"] = ir.AttrInt64s("dilations", [2, 2])
    assert "its dilations is (2, 2), that of the source's Conv 'conv' (1, 1)" in str(
        prove(source(), other, pictures())
    )

"""Integer products are exact whatever the CPU: the machine's own, and one without VNNI."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxport import convert_model
from onnxport.formats.model import Model
from onnxport.runtimes.options import RuntimeOptions
from onnxport.runtimes.ort.runtime import OrtRuntime
from tests import lesser_cpu
from tests.runtimes.integer_products import PRODUCTS, Product

_TYPES = ("u8", "s8")
_EXACT, _CPU = RuntimeOptions(), RuntimeOptions(integers="cpu")


def _off(product: Product, options: RuntimeOptions = _EXACT) -> float:
    """How far the answer is from the exact one, at most."""
    with OrtRuntime(product.model.SerializeToString(), options) as runtime:
        answer = runtime.run({"x": product.x})["y"].astype(np.float64)
    return float(np.abs(answer - product.y).max())


@pytest.mark.parametrize("weights", _TYPES)
@pytest.mark.parametrize("activations", _TYPES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_what_onnx_defines(name: str, activations: str, weights: str) -> None:
    if (activations, weights) == ("s8", "u8") and name not in _SIGNED_BY_UNSIGNED:
        pytest.skip("ONNX Runtime has no kernel for int8 by uint8")
    product = PRODUCTS[name](activations, weights)
    assert _off(product) <= product.tolerance


def test_nodes_may_come_in_any_order() -> None:
    """ONNX Runtime takes them so, and its own quantizer writes such files; onnx-ir cannot copy them."""
    product = PRODUCTS["Conv between DequantizeLinear"]("u8", "s8")
    nodes = list(product.model.graph.node)
    del product.model.graph.node[:]
    product.model.graph.node.extend(reversed(nodes))
    assert len(nodes) > 1
    assert _off(product) <= product.tolerance


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_model_in_memory_is_exact_and_changes_only_where_it_may(name: str, in_place: bool) -> None:
    product = PRODUCTS[name]("u8", "s8")
    model = Model(ir.from_proto(product.model))
    before = model.to_bytes()
    with OrtRuntime.of_model(model, in_place=in_place) as runtime:
        answer = runtime.run({"x": product.x})["y"].astype(np.float64)
    assert np.abs(answer - product.y).max() <= product.tolerance
    assert in_place or model.to_bytes() == before


_SIGNED_BY_UNSIGNED = (
    *("MatMulInteger", "MatMulInteger with zero points", "DynamicQuantizeMatMul"),
    *("MatMulInteger of computed weights", "Conv between DequantizeLinear"),
)


# An operand that is computed would take nodes of its own, which an .ort file is not given.
@pytest.mark.parametrize("name", sorted(PRODUCTS.keys() - {"MatMulInteger of computed weights"}))
def test_an_ort_file_is_exact_as_well(name: str, tmp_path: Path) -> None:
    product = PRODUCTS[name]("u8", "s8")
    onnx.save(product.model, tmp_path / "product.onnx")
    convert_model(tmp_path / "product.onnx", to="ort", output=tmp_path / "product.ort", validate=False)
    with OrtRuntime(tmp_path / "product.ort") as runtime:
        answer = runtime.run({"x": product.x})["y"].astype(np.float64)
    assert np.abs(answer - product.y).max() <= product.tolerance


def _report() -> None:
    """Prints how far each product is off with exact integers and with the CPU's; run on the lesser CPU."""
    found = {}
    for name, make in PRODUCTS.items():
        product = make("u8", "s8")
        found[name] = _off(product) <= product.tolerance, _off(product, _CPU) <= product.tolerance
    json.dump(found, sys.stdout)


def test_a_cpu_without_vnni_saturates_and_we_do_not(tmp_path: Path) -> None:
    if why := lesser_cpu.lacking():
        pytest.skip(why)
    code = f"from {__name__} import _report; _report()"
    run = lesser_cpu.run(lesser_cpu.python(tmp_path / "haswell"), "-c", code)
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout)
    assert [name for name, (exact, _) in found.items() if not exact] == []
    # What this guards against: the same files on the same CPU, untouched.
    assert [name for name, (_, own) in found.items() if own] == ["depthwise QLinearConv"]

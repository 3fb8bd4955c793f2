"""A table calibrates row by row, and the proof is fed the rows that calibration did not see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxport


def test_rows_of_a_table_are_held_out(tmp_path: Path) -> None:
    random = np.random.RandomState(3)
    weight = numpy_helper.from_array(random.randn(4, 3).astype("f4"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [weight],
    )
    model = tmp_path / "products.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), model)
    table = tmp_path / "rows.csv"
    np.savetxt(table, random.randn(40, 4), delimiter=",", header="a,b,c,d", comments="")
    report = onnxport.quantize_model(model, precision="int8", calib=table).report
    assert [each.shapes["x"] for each in report.fed] == [(1, 4)] * 8  # one of five
    assert not any("same sample" in note for note in report.notes)

"""XNNPACK's operators beside TFLite's."""

from __future__ import annotations

from onnxport.formats.graph.delegation import divide
from onnxport.profiling.litert_events import DELEGATED, KERNEL, Event, invocation, steps
from onnxport.profiling.xnnpack import align, shown
from tests.profiling.graphs import graph


def test_a_fused_padding_is_passed_over() -> None:
    names = ["Convolution (NHWC, F32) IGEMM", "HardSwish (NC)", "Fully Connected (NC, F32) GEMM"]
    operators = ["PAD", "CONV_2D", "HARD_SWISH", "PAD", "CONV_2D"]
    assert align(names, operators) == [1, 2, 4]


def test_operators_that_xnnpack_inserts_are_not_aligned() -> None:
    names = ["Convert (NC, F32, QD8)", "Fully Connected (NC, QD8, F32, QC8W) GEMM", "Softmax (NC, F32)"]
    assert align(names, ["FULLY_CONNECTED", "SOFTMAX"]) == [None, 0, 1]


def test_a_concatenation_is_a_copy_for_each_piece() -> None:
    assert align(["Copy (NC, X32)", "Copy (NC, X32)", "Add (ND)"], ["CONCATENATION", "ADD"]) == [0, 0, 1]


def test_an_operator_that_the_table_does_not_have_goes_by_its_name() -> None:
    assert align(["Reverse Sequence (ND)", "Odd (ND)"], ["REVERSE_SEQUENCE", "ADD"]) == [0, None]


def test_a_float_operator_between_integers_is_a_table_without_a_name_in_xnnpack() -> None:
    names = ["Convolution (NHWC, QC8) DWConv", "Invalid Unary Op"]
    operators = ["DEPTHWISE_CONV_2D", "DEQUANTIZE", "HARD_SWISH", "QUANTIZE"]
    assert align(names, operators) == [0, 2]
    assert [shown(name) for name in names] == [names[0], "Table of integers"]


def test_partitions_run_one_after_the_other() -> None:
    parts = graph("""
        a CONV_2D(x, w) -> a
        b RESIZE(a) -> b
        c ADD(b, a) -> c
        d RELU(a) -> d
    """)
    found = divide(parts, {node for node in parts.nodes if node.name != "b"})
    assert [[node.name for node in each.nodes] for each in found] == [["a", "d"], ["b"], ["c"]]


def test_nodes_that_need_each_other_are_divided_too() -> None:
    parts = graph("a ADD(x, b) -> a\nb ADD(a, x) -> b")
    found = divide(parts, parts.nodes)
    assert [[node.name for node in each.nodes] for each in found] == [["a", "b"]]


def test_a_loop_has_no_time_beside_its_body() -> None:
    events = [
        Event("Invoke", 1, 100, 60, 0, 0),
        Event("WHILE", KERNEL, 110, 40, 3, 0),
        Event("ADD", KERNEL, 115, 10, 0, 1),
        Event("Invoke", 1, 126, 20, 0, 1),
        Event("RELU", KERNEL, 155, 4, 4, 0),
        Event("Softmax (NC, F32)", DELEGATED, 0, 2, 0, 0),
    ]
    found = steps(events)
    assert [step.own for step in found] == [0.0, 10.0, 4.0, 2.5]
    assert [step.holder is found[0] for step in found] == [False, True, False, False]
    assert found[3].start == 159.0
    whole = invocation(events)
    assert whole is not None
    assert whole.elapsed == 60

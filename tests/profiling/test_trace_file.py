"""What ONNX Runtime's profiler writes, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onnxport.profiling.trace_file import Costs, kernels_by_run, read_events, read_run
from tests.profiling.graphs import graph

FREE = Costs(within=0.0, between=0.0, outside=0.0)


def kernel(name: str, op: str, ts: int, dur: int) -> dict[str, Any]:
    args = {"op_name": op, "provider": "CPUExecutionProvider", "node_index": "0"}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": args}


def run(ts: int, dur: int) -> dict[str, Any]:
    return {"cat": "Session", "name": "model_run", "ts": ts, "dur": dur, "args": {}}


def test_runs_have_their_kernels_in_whatever_order_events_come() -> None:
    events = [kernel("a", "Add", 11, 3), kernel("b", "Mul", 15, 2), run(10, 8)]
    events += [kernel("a", "Add", 31, 4), kernel("b", "Mul", 36, 2), run(30, 9)]
    for order in (events, sorted(events, key=lambda event: event["ts"]), events[::-1]):
        found = kernels_by_run(order)
        assert [each["ts"] for each, _ in found] == [10, 30]
        assert [sorted(kernel["ts"] for kernel in kernels) for _, kernels in found] == [[11, 15], [31, 36]]


def test_a_time_is_the_middle_of_its_microsecond_without_what_the_profiler_adds() -> None:
    executed = graph("a Add(x, w) -> s\nb Mul(s, w) -> y")
    kernels = [kernel("a", "Add", 11, 7), kernel("b", "Mul", 20, 4)]
    found = read_run(run(10, 15), kernels, executed, Costs(within=2.5, between=1.0, outside=0.0))
    assert [(span.node, span.name, span.own) for span in found.spans] == [(0, "a", 5.0), (1, "b", 2.0)]


def test_a_node_with_a_body_has_its_own_time_alone() -> None:
    body = graph("p Sin(x) -> q\nr Cos(q) -> o")
    executed = graph("if If(x) -> y\nend Relu(y) -> z", bodies={"if": [graph("n Neg(x) -> o"), body]})
    kernels = [
        kernel("p", "Sin", 12, 10),
        kernel("r", "Cos", 25, 6),
        kernel("if", "If", 11, 30),
        kernel("end", "Relu", 43, 2),
    ]
    found = read_run(run(10, 40), kernels, executed, Costs(within=1.0, between=2.0, outside=0.0))
    own = {span.name: span.own for span in found.spans}
    assert own == {"if": 30.5 - (10.5 + 2) - (6.5 + 2) - 1, "p": 9.5, "r": 5.5, "end": 1.5}
    assert [span.node for span in found.spans] == [0, 2, 3, 4]  # of the second body


def test_a_loop_counts_each_turn_of_its_body() -> None:
    executed = graph("loop Loop(x) -> y", bodies={"loop": [graph(" Sin(x) -> q\n Cos(q) -> o")]})
    turns = [
        kernel(name, op, ts, 1) for ts, (name, op) in enumerate([("Sin_0", "Sin"), ("Cos_1", "Cos")] * 3, 11)
    ]
    found = read_run(run(10, 20), [*turns, kernel("loop", "Loop", 10, 15)], executed, FREE)
    assert [span.node for span in found.spans] == [0, 1, 2, 1, 2, 1, 2]


def test_nodes_of_the_same_name_are_matched_by_order() -> None:
    executed = graph("n Relu(x) -> a\nn Relu(a) -> y")
    found = read_run(run(10, 9), [kernel("n", "Relu", 11, 2), kernel("n", "Relu", 14, 2)], executed, FREE)
    assert [span.node for span in found.spans] == [0, 1]


def test_a_kernel_that_the_graph_does_not_have_has_no_node() -> None:
    found = read_run(run(10, 9), [kernel("trt_0", "Compiled", 11, 2)], graph(""), FREE)
    assert [(span.node, span.op) for span in found.spans] == [(-1, "Compiled")]


@pytest.mark.parametrize("name", [b"caf\xe9", b"tab\there"])
def test_names_that_are_no_json_are_read(name: bytes, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(b'[{"cat" : "Node", "name" :"' + name + b'", "ts" :1,"dur" :2,"args" : {}}]')
    assert len(read_events(file)) == 1

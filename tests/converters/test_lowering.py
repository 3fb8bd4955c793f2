"""The registry's discipline: nothing unread, nothing twice, every reason at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import pytest

from onnxport.converters.lowering import NodeView, Registry, UnsupportedOp

Body = Callable[[NodeView[str], None], None]


def node(op: str = "Op", **attributes: Any) -> NodeView[str]:
    a, b = ir.Value(name="a"), ir.Value(name="b")
    made = ir.node(op, [a, b], attributes, name="the_node")
    made.outputs[0].name = "y"
    ir.Graph([a, b], [made.outputs[0]], nodes=[made])
    return NodeView(made, ["A", "B"])


def run(body: Body, view: NodeView[str]) -> None:
    registry: Registry[str, None] = Registry("Target", {"Never": "there is no such thing"})
    registry.lower("Op")(body)
    registry.run(view, None)


def reads_all(view: NodeView[str], builder: None) -> None:
    view.attribute("alpha", 1.0)
    view.emit(view.input(0) + view.input(1))


def test_a_lowering_that_reads_everything_passes() -> None:
    view = node(alpha=2.0)
    run(reads_all, view)
    assert view.results == {0: "AB"}


def test_an_attribute_left_unread_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match=r"attribute \['beta'\] is not handled"):
        run(reads_all, node(alpha=2.0, beta=1))


def test_an_input_left_unread_is_refused() -> None:
    def reads_one(view: NodeView[str], builder: None) -> None:
        view.emit(view.x)

    with pytest.raises(UnsupportedOp, match=r"input \[1\] is not handled"):
        run(reads_one, node())


def test_an_output_left_unbound_is_refused() -> None:
    def binds_nothing(view: NodeView[str], builder: None) -> None:
        view.rest()

    with pytest.raises(UnsupportedOp, match=r"output \[0\] is not handled"):
        run(binds_nothing, node())


def test_what_is_ignored_by_name_counts_as_read() -> None:
    def ignores(view: NodeView[str], builder: None) -> None:
        view.ignore("momentum")
        view.emit("".join(view.rest()))

    run(ignores, node(momentum=0.9))


def test_an_op_has_one_lowering() -> None:
    registry: Registry[str, None] = Registry("Target", {})
    registry.lower("Op")(reads_all)
    with pytest.raises(ValueError, match="Op has a lowering already"):
        registry.table({"Op": reads_all})


def test_an_op_without_a_lowering_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedOp, match="has no lowering to Target yet"):
        run(reads_all, node("Other"))
    with pytest.raises(UnsupportedOp, match="there is no such thing"):
        run(reads_all, node("Never"))


def test_a_required_attribute_or_input_that_lacks_is_refused() -> None:
    def wants(view: NodeView[str], builder: None) -> None:
        view.attribute("axis")

    with pytest.raises(UnsupportedOp, match="lacks its required attribute 'axis'"):
        run(wants, node())
    with pytest.raises(UnsupportedOp, match="lacks its required input 2"):
        run(lambda view, builder: view.emit(view.input(2)), node())

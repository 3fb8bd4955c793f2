"""The pass manager finds the passes that change the answers."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.optimizers.passes import Pass, PassManager

NAMES = ("right", "wrong", "late", "also wrong")


def rename(model: Model, name: str) -> None:
    model.graph.name = f"{model.graph.name} {name}".strip()


def empty() -> Model:
    return Model(ir.Model(ir.Graph([], [], nodes=[], name=""), ir_version=10))


def run(manager: PassManager, *, optional: bool = True) -> Model:
    """Run a pass per name, each of which appends its name to the graph's."""
    passes = [
        Pass(name, lambda model, name=name: rename(model, name), optional=optional or name != "wrong")
        for name in NAMES
    ]

    def attempt() -> Model:
        model = empty()
        for each in passes:
            if each.name not in manager.culprits:
                each.run(model)
                manager.prove(model, each)
        manager.prove(model)
        return model

    return manager.run(attempt)


def refuse_wrong(model: Model) -> str | None:
    return "off by one" if "wrong" in (model.graph.name or "") else None


@pytest.mark.parametrize("proves_each", [True, False])
def test_every_culprit_is_skipped_and_the_others_stay(proves_each: bool) -> None:
    manager = PassManager(refuse_wrong, proves_each=proves_each)
    assert run(manager).graph.name == "right late"
    assert manager.notes == tuple(
        f"pass {name!r} was skipped: it changes the model's answers: off by one"
        for name in ("wrong", "also wrong")
    )


def test_a_required_culprit_is_an_error() -> None:
    with pytest.raises(CannotConvertError, match="'wrong' changes the model's answers"):
        run(PassManager(refuse_wrong), optional=False)


@pytest.mark.parametrize(("proves_each", "checks"), [(True, len(NAMES)), (False, 1)])
def test_right_passes_are_checked_once_or_each(proves_each: bool, checks: int) -> None:
    checked = []
    run(PassManager(lambda model: checked.append(model), proves_each=proves_each))
    assert len(checked) == checks


def test_nothing_is_checked_without_an_equivalence() -> None:
    assert run(PassManager(None)).graph.name == " ".join(NAMES)

"""What differs between two models, as data."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeName(_Record):
    """A node: its operator with its domain, its name, and the first value that it gives."""

    op: str
    name: str
    value: str


class Detail(_Record):
    """One difference of a node that both models have, or of the models themselves.

    Attributes:
        what: "attribute epsilon", "weight w", "input 0", "opset ai.onnx".
        before, after: in words; empty where one model has none.
        kind: `storage` of a weight with the same numbers in other bits: within a step of its grid, or within 4 ULP,
            and of a value that one model alone quantizes.
    """

    kind: Literal["model", "attribute", "input", "output", "weight", "grid", "storage", "body"]
    what: str
    before: str
    after: str


class Change(_Record):
    """A node that differs, or that one model alone has.

    Attributes:
        node: the first model's, or the one that is added.
        details: of a changed node; `storage` alone is no change.
    """

    kind: Literal["changed", "stored", "removed", "added"]
    node: NodeName
    details: tuple[Detail, ...] = ()


class Became(_Record):
    """Nodes that are one operator of a converted form.

    Attributes:
        first: the first model's; the rest follows in its order what it computes.
        second: the form's operator and the name of its result.
    """

    first: tuple[NodeName, ...]
    second: str


class Comparison(_Record):
    """The differences of two models: of ONNX files, or of an ONNX file and a converted form.

    Attributes:
        first, second: paths of the models.
        model: differences of opsets, inputs and outputs.
        equal: number of nodes that both have, with equal attributes, weights and inputs.
        changes: in the first model's order, an added node behind the one that it follows.
        notes: what was done to compare them.
        became: what computes the same as which nodes, from the inputs to the outputs: of a converted form all, of an
            ONNX model with other nodes what these are instead.
    """

    first: str
    second: str
    model: tuple[Detail, ...] = ()
    equal: int = 0
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    became: tuple[Became, ...] = ()

    @property
    def is_converted(self) -> bool:
        """Whether the second model has another format."""
        return any(each.what == "format" for each in self.model)

    @property
    def has_same_nodes(self) -> bool:
        """Whether both models have the same nodes, each with operands that are given alike."""
        details = [each for change in self.changes for each in change.details]
        is_paired = all(each.kind not in ("removed", "added") for each in self.changes)
        return is_paired and all(each.kind != "input" for each in details)

    @property
    def is_same(self) -> bool:
        """Whether nothing differs but how weights are stored."""
        return not self.model and all(each.kind == "stored" for each in self.changes)

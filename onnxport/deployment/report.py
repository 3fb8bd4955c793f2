"""Where a model runs, as data."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN

SCHEMA_VERSION: Literal[1] = 1

# "estimated" follows from a data file, "asked" from the runtime itself in a process of its own.
How = Literal["asked", "estimated"]
# How much of the model it takes. "part": the rest falls back to another, as ONNX Runtime's CPU provider; a runtime with
# nothing to fall back to takes all or none. "unknown" where it was asked and crashed or hung.
Extent = Literal["all", "part", "none", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Fallback(_Record):
    """A node that the runtime leaves to another, or for which it refuses the model.

    Attributes:
        node: its name as Netron shows it; that of its first output where it has none.
        why: in the model's own terms: "rank 5, at most 4", "opset 22, at most 21", "axes are computed at run time".
    """

    op: str
    node: str
    why: str


class Change(_Record):
    """One change to the model that would make the runtime take more of it.

    Attributes:
        said: what to do.
        command: the command of ours that does it; empty where none does.
        mends: how many of the fallbacks it would end.
    """

    said: str
    command: str
    mends: int


class Placement(_Record):
    """One runtime, or one execution provider, and the model.

    Attributes:
        runtime: its word in `--runs-on`.
        title: what it calls itself.
        version: of the installed one that was asked, or that the data file is about.
        source, dated: where the data file has it from, and of which day (ISO 8601) that is; empty where it was asked.
        nodes: of the graph that it was asked about, which is the model without constant nodes.
        taken: how many of them it takes.
        partitions: connected groups of taken nodes that run without a return to the fallback; None where it has none.
        why: what keeps the whole model out, where that is no node; empty otherwise.
    """

    runtime: str
    title: str
    how: How
    extent: Extent
    version: str
    source: str = ""
    dated: str = ""
    nodes: int = 0
    taken: int = 0
    partitions: int | None = None
    fallbacks: tuple[Fallback, ...] = ()
    change: Change | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


class DeploymentReport(_Record):
    """All runtimes that were asked for, and one model.

    Attributes:
        strict: `--error-on-fallback`.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    command: str
    model: str
    format: str
    strict: bool
    placements: tuple[Placement, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 where `strict` and a runtime does not take all."""
        short = any(each.extent != "all" for each in self.placements)
        return NOT_EQUIVALENT if self.strict and short else PROVEN

"""Where a model runs, as data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN
from onnxport.core.tabular import Tabular

SCHEMA_VERSION: Literal[1] = 1

# "estimated" follows from a data file, "asked" from a probe of the runtime itself.
How = Literal["asked", "estimated"]
# How much of the model it takes. "part": the rest falls back to another runtime; a runtime without a fallback takes all
# or none. "unknown": its probe crashed or hung.
Extent = Literal["all", "part", "none", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Fallback(_Record):
    """A node that falls back to another runtime, or for which the runtime refuses the model.

    Attributes:
        node: its name as Netron shows it, or that of its first output.
        why: in the model's own terms: "rank 5, at most 4", "opset 22, at most 21", "axes are computed at run time".
    """

    op: str
    node: str
    why: str


class Change(_Record):
    """One change to the model that would make the runtime take more of it.

    Attributes:
        said: what to change.
        command: our command that does it; empty if there is none.
        mends: how many fallbacks it removes.
    """

    said: str
    command: str
    mends: int


class Run(_Record):
    """Nodes that run one after the other on one side.

    Attributes:
        accelerated: by the runtime; else by the fallback.
        first, last: their names.
    """

    accelerated: bool
    nodes: int
    first: str
    last: str


class Placement(_Record):
    """What one runtime, or one execution provider, takes of the model.

    Attributes:
        runtime: its word in `--runs-on`.
        title: its own name.
        version: of the probed runtime, or of the one in the data file.
        source, dated: the source of the data file and its day (ISO 8601); empty for a probe.
        nodes: the number of nodes of the graph, which is the model without constant nodes.
        taken: how many of them it takes.
        partitions: connected groups of taken nodes that run without a return to the fallback; None without a fallback.
        copies: values inside the graph that would move between the runtime and the CPU; None where not counted.
        runs: runs of nodes in the order in which they would run; empty where all run on one side, or not counted.
        why: why it refuses the whole model, if that is no node; empty otherwise.
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
    copies: int | None = None
    runs: tuple[Run, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    change: Change | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


class DeploymentReport(Tabular, _Record):
    """What all requested runtimes take of one model.

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

    _about: ClassVar = ("model",)
    _table: ClassVar = "placements"
    _columns: ClassVar = ("runtime", "extent", "taken", "nodes", "partitions", "how", "version", "why")

    @property
    def exit_code(self) -> int:
        """1 if `strict` and a runtime does not take the whole model."""
        short = any(each.extent != "all" for each in self.placements)
        return NOT_EQUIVALENT if self.strict and short else PROVEN

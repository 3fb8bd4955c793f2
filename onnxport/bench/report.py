"""The report of a bench as data: `--json`, a saved baseline and the result of Python calls."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import MISSING_DEPENDENCY, NOT_EQUIVALENT, PROVEN, worst
from onnxport.core.tabular import Tabular

SCHEMA_VERSION: Literal[1] = 1

# "not here": this machine or build lacks something; "refused": the runtime refuses the model.
Status = Literal["measured", "not here", "refused", "crashed", "hung"]
# A row compared with its baseline; "unclear" where noise prevents a decision.
Standing = Literal["kept", "slower", "unclear", "new"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Settings(_Record):
    """The settings of a row; None for those that its runtime does not have.

    Attributes:
        runtime: its name, as in `--candidate-runtime runtime=`.
        provider: an execution provider, a delegate or compute units, in lower case: "cpu", "xnnpack".
        level: ONNX Runtime's graph optimizations.
        batch: size of the inputs' batch, where it is open or was given.
    """

    runtime: str
    provider: str | None = None
    threads: int | None = None
    level: str | None = None
    batch: int | None = None


class Spread(_Record):
    """Milliseconds of one warm run.

    Attributes:
        median: p50.
        p90, p99: None where a device's tool does not print them.
        low, high, confidence: an interval and the probability that it contains the true median.
        runs: number of timed runs over all rounds.
        rounds: median of each round, in order.
    """

    median: float
    p90: float | None = None
    p99: float | None = None
    least: float
    low: float
    high: float
    confidence: float
    runs: int
    rounds: tuple[float, ...]


class Floor(_Record):
    """The time of a run without interference by other programs (statistics.py), in milliseconds.

    Attributes:
        wall: of the fastest run; wall_next: of the fastest run of the third fastest turn.
        cpu: CPU time of all threads, at the first quintile of the turns.
        cpu_low, cpu_high: its interval of 95 % confidence.
        cores: number that the fastest runs kept busy.
        turns: number of turns.
    """

    wall: float
    wall_next: float
    cpu: float
    cpu_low: float
    cpu_high: float
    cores: float
    turns: int


class Memory(_Record):
    """Bytes resident in the artefact's own process.

    Attributes:
        bare: before the runtime was imported.
        imported: after that.
        loaded: with the model ready to run; None where a device's tool does not print it.
        peak: the maximum until the end of the last run.
    """

    bare: int
    imported: int
    loaded: int | None
    peak: int

    @property
    def added(self) -> int:
        """The peak without the bare process."""
        return self.peak - self.bare


class Accuracy(_Record):
    """The accuracy of the outputs against the reference's, on the inputs of the bench.

    Attributes:
        reference: path of the reference.
        sqnr: dB of the worst output; infinite where all are equal.
        output: name of that output.
        sets: number of sets of inputs that were compared.
    """

    reference: str
    sqnr: float
    output: str
    sets: int = 1


class Delegation(_Record):
    """The nodes that a delegate or an execution provider took, as the benchmark tool of a device says.

    Attributes:
        delegate: its name, as "TfLiteXNNPackDelegate".
        nodes, of: number of nodes that it took, and that there were.
        partitions: number of parts of the graph, its own and those between them.
        extent: of a tool that counts no nodes: whether it took all, a part or none.
        kernels: number of its parts, where the tool counts those.
    """

    delegate: str
    nodes: int | None = None
    of: int | None = None
    partitions: int | None = None
    extent: Literal["all", "part", "none"] | None = None
    kernels: int | None = None


class Standard(_Record):
    """A row compared with its baseline.

    Attributes:
        ratio: of the times, now over before; above 1 is slower. None where the baseline has no such row.
        low, high: its interval, from the noise of both.
        limit: `--max-slowdown`.
    """

    standing: Standing
    limit: float
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    said: str = ""


class Row(_Record):
    """One artefact under one set of settings.

    Attributes:
        artifact: its path as given.
        precision: of its weights or its QDQ nodes; empty where unknown.
        ran_on: runtime and version.
        size, compressed: bytes on disk with all companions, and bytes in a ZIP file.
        load_ms: from the file to a model that can run, without imports.
        first_ms: the first run, which may still prepare kernels; with `load_ms` it is the cold start.
        second_ms: the second run. Later ones, after the warm-up, are in `latency`.
        throughput: samples a second at this batch.
        joules: of one run; None without a counter.
        delegations: which delegate took how many nodes, on a device.
        over: the limits that it exceeds, with both figures.
        why: reason why a row has no figures, and the fix.
        exit_code: of a run with this row alone.
    """

    artifact: str
    format: str
    status: Status
    settings: Settings
    precision: str = ""
    ran_on: str = ""
    size: int = 0
    compressed: int = 0
    load_ms: float | None = None
    first_ms: float | None = None
    second_ms: float | None = None
    latency: Spread | None = None
    floor: Floor | None = None
    throughput: float | None = None
    memory: Memory | None = None
    joules: float | None = None
    accuracy: Accuracy | None = None
    delegations: tuple[Delegation, ...] = ()
    against: Standard | None = None
    over: tuple[str, ...] = ()
    why: str = ""
    exit_code: int = PROVEN

    @property
    def key(self) -> tuple[str, Settings]:
        """Identifies the same row of another run."""
        return self.artifact, self.settings


class Machine(_Record):
    """The machine that was measured on; reports of different machines are not comparable.

    Attributes:
        memory: bytes.
        load: running programs for each core, over the minute before.
        device: of `--device`, with its product's name; empty for this machine.
    """

    processor: str
    instruction_sets: str
    cores: int
    memory: int
    system: str
    load: float
    device: str = ""


class BenchReport(Tabular, _Record):
    """All rows of a run.

    Attributes:
        pace_ms: time of a fixed piece of work between the rounds, for later comparisons.
        others: share of the cores' time that other programs used during the rounds; None where unknown.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    command: str
    created: str
    machine: Machine
    versions: dict[str, str]
    runs: int
    warmup: int
    inputs: str
    rows: tuple[Row, ...]
    pace_ms: float | None = None
    others: float | None = None
    notes: tuple[str, ...] = ()

    _about: ClassVar = ("inputs",)
    _table: ClassVar = "rows"
    _columns: ClassVar = (
        *("artifact", "settings.threads", "settings.batch", "settings.provider", "status", "why", "size"),
        *("load_ms", "first_ms", "second_ms", "latency.median", "latency.low", "latency.high", "memory.peak"),
    )

    @property
    def exit_code(self) -> int:
        """The worst exit code of the rows; a row slower than its baseline allows, or beyond a limit, is over budget.

        Where no row could be measured, because all need another machine, it is that of a missing dependency.
        """
        slower = any(row.against is not None and row.against.standing == "slower" for row in self.rows)
        over = any(row.over for row in self.rows)
        found = worst([NOT_EQUIVALENT if slower or over else PROVEN, *(row.exit_code for row in self.rows)])
        nothing = not any(row.status == "measured" for row in self.rows)
        return MISSING_DEPENDENCY if nothing and found == PROVEN else found

"""What a bench found, as data: the whole of `--json`, of a saved baseline and of what Python callers get."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from onnxport.core.errors import MISSING_DEPENDENCY, NOT_EQUIVALENT, PROVEN, worst

SCHEMA_VERSION: Literal[1] = 1

# What became of one row: figures, something that this machine or build lacks, a model that the runtime refuses, or the
# end of a process that nobody asked for.
Status = Literal["measured", "not here", "refused", "crashed", "hung"]
# What a row is beside the same row of a baseline; "unclear" where the noise hides which.
Standing = Literal["kept", "slower", "unclear", "new"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Settings(_Record):
    """Under which a row was measured; what its runtime does not know is None.

    Attributes:
        runtime: who runs it, as `--candidate-runtime runtime=` spells it.
        provider: an execution provider, a delegate or compute units, in lower case: "cpu", "xnnpack".
        level: ONNX Runtime's graph optimizations.
        batch: size of every input's batch, where that is open or one was asked for.
    """

    runtime: str
    provider: str | None = None
    threads: int | None = None
    level: str | None = None
    batch: int | None = None


class Spread(_Record):
    """Milliseconds of one warm run.

    Attributes:
        median: which is p50.
        low, high, confidence: an interval and the probability that it holds the true median.
        runs: how many were timed, over all rounds.
        rounds: median of each round, in their order.
    """

    median: float
    p90: float
    p99: float
    least: float
    low: float
    high: float
    confidence: float
    runs: int
    rounds: tuple[float, ...]


class Floor(_Record):
    """What a model takes when nobody is in its way (floors.py); milliseconds of one run.

    Attributes:
        wall: of the fastest run; wall_next: of the fastest in the turn that is third by that.
        cpu: spent on cores, all threads together, by what a fifth of the turns stay below.
        cpu_low, cpu_high: the interval that holds it with 95 %.
        cores: how many the fastest runs kept busy.
        turns: how many there were.
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
        imported: once it was.
        loaded: with the model ready to run.
        peak: the most until the last run's end.
    """

    bare: int
    imported: int
    loaded: int
    peak: int

    @property
    def added(self) -> int:
        """What runtime and model add to the bare process, at the most."""
        return self.peak - self.bare


class Accuracy(_Record):
    """How near the answers are to those of the reference, on the inputs of the bench.

    Attributes:
        reference: path of the model that was asked.
        sqnr: dB of the worst output; infinite where all are the same.
        output: which that is.
    """

    reference: str
    sqnr: float
    output: str


class Standard(_Record):
    """A row beside the same row of a baseline.

    Attributes:
        ratio: of the times, now over then; above 1 is slower. None where there is no such row.
        low, high: an interval of it, the noise of both taken into account.
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
        precision: of its weights or its QDQ nodes, as far as the file tells.
        ran_on: runtime and version, as a report names it.
        size, compressed: bytes on disk with all companions, and the same as a ZIP would hold it.
        load_ms: from the file to a model that can run, without imports.
        first_ms: the first run, which may still prepare kernels.
        throughput: samples a second, at this batch.
        joules: of one run; None where the machine does not tell.
        why: what a row without figures lacks, in a sentence; and the way out.
        exit_code: which the row alone would end with.
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
    latency: Spread | None = None
    floor: Floor | None = None
    throughput: float | None = None
    memory: Memory | None = None
    joules: float | None = None
    accuracy: Accuracy | None = None
    against: Standard | None = None
    why: str = ""
    exit_code: int = PROVEN

    @property
    def key(self) -> tuple[str, Settings]:
        """What a row is called the same as in a baseline."""
        return self.artifact, self.settings


class Machine(_Record):
    """On which it was measured; two bench reports of different machines compare nothing.

    Attributes:
        memory: bytes.
        load: programs that wanted a core, for each that there is, over the last minute before.
    """

    processor: str
    instruction_sets: str
    cores: int
    memory: int
    system: str
    load: float


class BenchReport(_Record):
    """All rows of a run.

    Attributes:
        pace_ms: what a fixed piece of work took between the rounds, for a later comparison.
        others: of the cores' time during the rounds, the share that others had; None where nobody tells.
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

    @property
    def exit_code(self) -> int:
        """The worst of the rows'; a row slower than its limit is as an artefact over its budget. Where nothing could be
        measured, because all of it belongs on another machine, that is missing here."""
        slower = any(row.against is not None and row.against.standing == "slower" for row in self.rows)
        found = worst([NOT_EQUIVALENT if slower else PROVEN, *(row.exit_code for row in self.rows)])
        nothing = not any(row.status == "measured" for row in self.rows)
        return MISSING_DEPENDENCY if nothing and found == PROVEN else found

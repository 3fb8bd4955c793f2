"""The content that all forms of a pipeline's run show: each cell with its node, and all failures with their reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN
from onnxport.reports import phrases
from onnxport.reports.phrases import text
from onnxport.reports.pipeline.option_keys import spell_as_keys
from onnxport.reports.pipeline_report import CellRecord, NodeRecord, PipelineReport, PlaceRecord
from onnxport.reports.run_report import ArtifactRecord, Latency, RunReport, rejection, remedies
from onnxport.validate.report import Diagnosis, OutputReport

LIMITS = "limits"
_LONGEST_REASON = 160  # characters in a table

# For cells, as WORST_FIRST for reports.
_WORST_FIRST = (
    "failed",
    "not equivalent",
    "over budget",
    "inconclusive",
    "not run",
    "unproven",
    "proven",
    "measured",
)


@dataclass(frozen=True)
class Row:
    """A cell with its node, or a node that it depends on as the `failed_node`; `number` counts from 1.

    In a run that `is_frozen`, what was delivered has the lock's bytes.
    """

    number: int
    cell: CellRecord
    node: NodeRecord
    failed_node: NodeRecord | None
    is_frozen: bool = False

    @property
    def label(self) -> str:
        """The target and the values of the matrix."""
        return "/".join((self.cell.target, *self.cell.values.values()))

    @cached_property
    def artifact(self) -> ArtifactRecord | None:
        """The artefact, also where it was rejected."""
        return artifact_of(self.node)

    @property
    def latency(self) -> Latency | None:
        """The latency, where a limit needed it or the precision was lowered."""
        worth = self.artifact.worth if self.artifact is not None else None
        return self.cell.latency or (worth.latency if worth is not None else None)

    @property
    def worst_output(self) -> OutputReport | None:
        """The output with the lowest SQNR: against the float original where the precision was lowered."""
        judgements = self.artifact.report.judgements if self.artifact is not None else ()
        outputs = {each.question: each.outputs for each in judgements}
        return min(outputs.get("quality") or outputs.get("fidelity") or (), key=comparable_sqnr, default=None)

    @property
    def accuracy(self) -> str:
        """ "SQNR 31.2 dB", "without error"; empty where nothing was judged."""
        if self.worst_output is None:
            return ""
        sqnr = phrases.sqnr(self.worst_output)
        return f"SQNR {sqnr}" if self.worst_output.sqnr_db is not None else sqnr

    @property
    def worst(self) -> str:
        return phrases.worst(self.artifact.report) if self.artifact is not None else ""

    @property
    def size(self) -> str:
        return phrases.size(self.artifact) if self.artifact is not None else ""

    @property
    def speed(self) -> str:
        return phrases.speed(self.latency) if self.latency is not None else ""

    @property
    def why(self) -> str:
        """The reason why it was not delivered; empty where it was."""
        if self.failed_node is None:
            return "" if self.cell.exit_code == PROVEN else self.cell.reason
        return reason_of(self.node) if self.failed_node is self.node else f"{self.failed_node.name} failed"

    @property
    def short(self) -> str:
        """`why` on one line that fits a table."""
        first, *more = self.why.split("\n")
        cut = first[:_LONGEST_REASON]
        return f"{text(cut)} …" if more or cut != first else text(cut)

    @property
    def origin(self) -> str:
        """ "made, 1.2 s", "from the cache, not kept"; empty where nothing was made.

        In a frozen run also when it was judged: "from the cache, proven when it was made, locked bytes".
        """
        if self.artifact is None:
            return ""
        if self.is_frozen and self.cell.path and self.cell.exit_code == PROVEN:
            verdict = self.cell.verdict
            if self.node.status == "cached":
                return f"from the cache, {verdict} when it was made, locked bytes"
            return f"made and {verdict} in {self.node.seconds:.1f} s, locked bytes"
        parts = (
            origin(self.node) if self.node.status in ("made", "cached") else "made",
            f"{self.node.seconds:.1f} s" if self.node.status != "cached" else "",
            "" if self.cell.path else "not kept",
        )
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Fault:
    """A failure: of a node, or of a cell that exceeds a limit or could not be delivered.

    Attributes:
        stage: the stage's name, LIMITS or "delivery".
        kind: the verdict, or "failed" where an error ended it.
        sentence: as the command line shows it.
        at: the line of the file that asks for it; None where unknown.
        lost: names of the cells that are missing because of it.
        diagnosis: the ONNX node at fault, where that was looked for.
    """

    name: str
    stage: str
    kind: str
    sentence: str
    exit_code: int
    at: PlaceRecord | None
    model: str
    lost: tuple[str, ...]
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the other cells that are missing because of it."""
        return tuple(name for name in self.lost if name != self.name)

    @property
    def found(self) -> str:
        """The result of the search for the ONNX node; empty where there was none."""
        return text(self.diagnosis.summary) if self.diagnosis is not None else ""

    @property
    def onnx_node(self) -> str:
        """The ONNX node at fault in words; empty where unknown."""
        found = self.diagnosis.node if self.diagnosis is not None else None
        return phrases.node(found) if found is not None else ""


def comparable_sqnr(output: OutputReport) -> float:
    """Return dB; infinite without error, and minus infinite for NaN."""
    if output.sqnr_db is None:
        return math.inf
    return -math.inf if math.isnan(output.sqnr_db) else output.sqnr_db


def rows(report: PipelineReport) -> list[Row]:
    """Return the cells with their nodes."""
    nodes = {node.name: node for node in report.nodes}
    found = []
    for number, cell in enumerate(report.cells, 1):
        failed: NodeRecord | None = nodes[cell.node]
        while failed is not None and not is_failed(failed):
            failed = nodes.get(failed.after)
        found.append(Row(number, cell, nodes[cell.node], failed, report.frozen))
    return found


def worst_first(shown: Sequence[Row]) -> list[Row]:
    """Return the rows, those that were not delivered first."""
    return sorted(shown, key=lambda row: row.cell.path is not None)


def faults(report: PipelineReport) -> list[Fault]:
    """Return all failures in the order of the run: nodes, then limits and deliveries."""
    shown = rows(report)
    nodes = [_node_fault(node, shown) for node in report.nodes if is_failed(node)]
    return [*nodes, *(_cell_fault(row) for row in shown if row.cell.exit_code != PROVEN)]


def _node_fault(node: NodeRecord, shown: Sequence[Row]) -> Fault:
    lost = [row.cell for row in shown if row.failed_node is node]
    return Fault(
        name=node.name,
        stage=node.stage,
        kind=verdict_of(node),
        sentence=_sentence(node),
        exit_code=node.failure.exit_code if node.failure is not None else NOT_EQUIVALENT,
        at=node.at or next((cell.at for cell in lost), None),
        model=node.model,
        lost=tuple(cell.name for cell in lost),
        seconds=node.seconds,
        diagnosis=None if (found := artifact_of(node)) is None else found.report.diagnosis,
    )


def _cell_fault(row: Row) -> Fault:
    return Fault(
        name=row.cell.name,
        stage=LIMITS if any(not each.kept for each in row.cell.limits) else "delivery",
        kind=row.cell.verdict,
        sentence=f"{row.cell.name}: {row.why}",
        exit_code=row.cell.exit_code,
        at=row.cell.at,
        model=row.cell.model,
        lost=(row.cell.name,),
    )


def is_failed(node: NodeRecord) -> bool:
    """Return whether the node itself failed, rather than one that it depends on."""
    return node.status == "failed"


def verdict_of(node: NodeRecord) -> str:
    """Return the judge's verdict, or the status where nothing was judged."""
    artifact = artifact_of(node)
    return node.status if artifact is None or node.failure is not None else artifact.report.verdict


def worst_verdict(report: PipelineReport) -> str:
    """Return the worst verdict of the cells and of the stages that failed."""
    found = [*(cell.verdict for cell in report.cells), *map(verdict_of, filter(is_failed, report.nodes))]
    return min(found, key=_WORST_FIRST.index, default="unproven")


def artifact_of(node: NodeRecord) -> ArtifactRecord | None:
    """Return a node's artefact under the node's name: its name in the cache means nothing to a reader."""
    run = run_of(node)
    return run.artifacts[0] if run is not None and run.artifacts else None


def run_of(node: NodeRecord) -> RunReport | None:
    """Return the run that made a node's artefacts, with these under the node's name."""
    if node.run is None:
        return None
    artifacts = tuple(_rename(each, node.name) for each in node.run.artifacts)
    return node.run.model_copy(update={"artifacts": artifacts})


def _rename(artifact: ArtifactRecord, name: str) -> ArtifactRecord:
    candidate = artifact.report.candidate.model_copy(update={"path": name})
    update = {
        "path": name if artifact.path is not None else None,
        "companions": tuple(
            each.model_copy(update={"path": PurePath(each.path).name}) for each in artifact.companions
        ),
        "report": artifact.report.model_copy(update={"candidate": candidate}),
        "notes": tuple(map(spell_as_keys, artifact.notes)),
    }
    return artifact.model_copy(update=update)


def reason_of(node: NodeRecord) -> str:
    """Return why a node failed, without its name."""
    artifact = artifact_of(node)
    if node.failure is not None:
        return spell_as_keys(node.failure.message)
    return artifact.report.reason if artifact is not None else node.why


def _sentence(node: NodeRecord) -> str:
    """Return why a node failed, as the command line shows it."""
    artifact = artifact_of(node)
    if node.failure is not None or artifact is None:
        return f"{node.name}: {reason_of(node)}"
    report = artifact.report
    return "; ".join((f"{rejection(report)}: {report.reason}", *map(spell_as_keys, remedies(report))))


def lines(sentence: str) -> list[str]:
    """Return a sentence's lines as text: line breaks are ours, other control characters come from files."""
    return [text(line) for line in sentence.split("\n")]


def totals(report: PipelineReport) -> str:
    """Return "5 artefacts, 4 proven, 1 over budget; 2 made, 3 from the cache; 12.3 s"."""
    verdicts = Counter(cell.verdict for cell in report.cells)
    counts = [f"{verdicts[each]} {each}" for each in reversed(_WORST_FIRST) if verdicts[each]]
    statuses = Counter(row.node.status for row in rows(report))
    origins = (f"{statuses['made']} made", f"{statuses['cached']} from the cache")
    parts = (
        ", ".join((phrases.count(len(report.cells), "artefact"), *counts)),
        ", ".join(each for each in origins if not each.startswith("0 ")),
        f"{report.seconds:.1f} s",
    )
    return "; ".join(part for part in parts if part)


def environment(report: PipelineReport) -> dict[str, str]:
    """Return the versions and the machine of the run and its stages; the cache's keys hold the versions."""
    found = dict(report.environment)
    for node in report.nodes:
        if node.run is not None:
            found = node.run.environment | found
    return dict(sorted(found.items()))


def by_model(shown: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in shown:
        found.setdefault(row.cell.model, []).append(row)
    return found


def figures(row: Row) -> Iterator[tuple[str, str]]:
    """Yield the figures of a cell as pairs of a label and its text."""
    every = {
        "verdict": row.cell.verdict,
        "size": row.size,
        "accuracy": row.accuracy,
        "worst": row.worst,
        "speed": row.speed,
        "origin": origin(row.node),
        "path": row.cell.path or "",
    }
    yield from ((label, text(value)) for label, value in every.items() if value)
    for limit in row.cell.limits:
        yield limit.name, text(limit.said)


def origin(node: NodeRecord) -> str:
    """Return where a node's artefact came from."""
    return "from the cache" if node.status == "cached" else node.status

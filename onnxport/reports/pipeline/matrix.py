"""What the views show of a run: each cell with the node that made it, and all that failed with its reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from onnxport.core.errors import NOT_EQUIVALENT, PROVEN
from onnxport.reports import wording
from onnxport.reports.pipeline.option_keys import spell_as_keys
from onnxport.reports.pipeline_report import CellRecord, NodeRecord, PipelineReport, PlaceRecord
from onnxport.reports.run_report import ArtifactRecord, Latency, RunReport, accusation, ways_out
from onnxport.reports.wording import text
from onnxport.validate.report import Diagnosis, OutputReport

LIMITS = "limits"
_SHORT = 160  # characters

# Of cells, as WORST_FIRST is of reports.
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
    """A cell with what is known of it.

    Attributes:
        number: from 1, in the order of the file.
        node: the one that makes it.
        culprit: the node that failed, itself or before it; None where none did.
    """

    number: int
    cell: CellRecord
    node: NodeRecord
    culprit: NodeRecord | None

    @property
    def label(self) -> str:
        """Its target, with its values of the matrix."""
        return "/".join((self.cell.target, *self.cell.values.values()))

    @cached_property
    def made(self) -> ArtifactRecord | None:
        """What was made, also where it was not let out."""
        return artifact_of(self.node)

    @property
    def latency(self) -> Latency | None:
        """Where a limit had it measured, or its precision was lowered."""
        made = self.made.worth.latency if self.made is not None and self.made.worth is not None else None
        return self.cell.latency or made

    @property
    def telling(self) -> OutputReport | None:
        """The output with the lowest SQNR: against the float original where the precision was lowered."""
        judgements = self.made.report.judgements if self.made is not None else ()
        asked = {each.question: each.outputs for each in judgements}
        return min(asked.get("quality") or asked.get("fidelity") or (), key=sqnr_of, default=None)

    @property
    def accuracy(self) -> str:
        """ "SQNR 31.2 dB", "without error"; empty where nothing was judged."""
        if self.telling is None:
            return ""
        said = wording.sqnr(self.telling)
        return f"SQNR {said}" if self.telling.sqnr_db is not None else said

    @property
    def worst(self) -> str:
        return wording.worst(self.made.report) if self.made is not None else ""

    @property
    def size(self) -> str:
        return wording.size(self.made) if self.made is not None else ""

    @property
    def why(self) -> str:
        """Why it was not delivered; empty where it was."""
        if self.culprit is None:
            return "" if self.cell.exit_code == PROVEN else self.cell.reason
        return reason_of(self.culprit) if self.culprit is self.node else f"{self.culprit.name} failed"

    @property
    def short(self) -> str:
        """`why` on one line that fits a table."""
        first, *more = self.why.split("\n")
        cut = first if len(first) <= _SHORT else f"{first[:_SHORT]}"
        return f"{text(cut)} …" if more or cut != first else text(cut)

    @property
    def origin(self) -> str:
        """ "made, 1.2 s", "from the cache, not kept"; empty where nothing was made."""
        if self.made is None:
            return ""
        parts = (
            origin(self.node) if self.node.status in ("made", "cached") else "made",
            f"{self.node.seconds:.1f} s" if self.node.status != "cached" else "",
            "" if self.cell.path else "not kept",
        )
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Fault:
    """Something that failed: a node, or a cell that does not keep a limit or cannot be put in its place.

    Attributes:
        name: of the node or of the cell.
        stage: what failed there: the stage's name, LIMITS or "delivery".
        kind: the verdict, or "failed" where an error ended it.
        sentence: as the command line says it.
        at: where the file asks for it; None where that is not known.
        lost: names of the cells that are not there because of it.
        diagnosis: the ONNX node behind it, where that was looked for.
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
        """Names of the cells that it takes along."""
        return tuple(name for name in self.lost if name != self.name)

    @property
    def found(self) -> str:
        """What the search for the ONNX node came to; empty where there was none."""
        return text(self.diagnosis.summary) if self.diagnosis is not None else ""

    @property
    def onnx_node(self) -> str:
        """The ONNX node, in words; empty where none is known."""
        found = self.diagnosis.node if self.diagnosis is not None else None
        return wording.node(found) if found is not None else ""


def sqnr_of(output: OutputReport) -> float:
    """dB; infinite without error, and minus infinite where there is no number."""
    if output.sqnr_db is None:
        return math.inf
    return -math.inf if math.isnan(output.sqnr_db) else output.sqnr_db


def rows(report: PipelineReport) -> list[Row]:
    nodes = {node.name: node for node in report.nodes}
    return [
        Row(count, cell, nodes[cell.node], _culprit(nodes[cell.node], nodes))
        for count, cell in enumerate(report.cells, 1)
    ]


def faults(report: PipelineReport) -> list[Fault]:
    """All that failed, in the order of the run: nodes, then limits."""
    shown = rows(report)
    found = []
    for node in report.nodes:
        if failed(node):
            lost = tuple(row.cell.name for row in shown if row.culprit is node)
            found.append(
                Fault(
                    name=node.name,
                    stage=node.stage,
                    kind=verdict_of(node),
                    sentence=sentence_of(node),
                    exit_code=node.failure.exit_code if node.failure is not None else NOT_EQUIVALENT,
                    at=node.at or next((row.cell.at for row in shown if row.culprit is node), None),
                    model=node.model,
                    lost=lost,
                    seconds=node.seconds,
                    diagnosis=diagnosis_of(node),
                )
            )
    found += [
        Fault(
            name=row.cell.name,
            stage=LIMITS if any(not each.kept for each in row.cell.limits) else "delivery",
            kind=row.cell.verdict,
            sentence=f"{row.cell.name}: {row.why}",
            exit_code=row.cell.exit_code,
            at=row.cell.at,
            model=row.cell.model,
            lost=(row.cell.name,),
        )
        for row in shown
        if row.cell.exit_code != PROVEN
    ]
    return found


def failed(node: NodeRecord) -> bool:
    """Whether it is a cause, and not "not run" for that of another."""
    return node.status == "failed"


def verdict_of(node: NodeRecord) -> str:
    """The judge's, or the status where nothing was judged."""
    made = artifact_of(node)
    return node.status if made is None or node.failure is not None else made.report.verdict


def verdict(report: PipelineReport) -> str:
    """The worst of the cells', and of the stages that some wait for."""
    found = [*(cell.verdict for cell in report.cells), *map(verdict_of, filter(failed, report.nodes))]
    return min(found, key=_WORST_FIRST.index, default="unproven")


def artifact_of(node: NodeRecord) -> ArtifactRecord | None:
    """What a node made, called by the node's name: the cache's name for it tells nobody anything."""
    shown = run_of(node)
    return shown.artifacts[0] if shown is not None and shown.artifacts else None


def run_of(node: NodeRecord) -> RunReport | None:
    """The run that made a node's product, with the product under the node's name."""
    if node.run is None:
        return None
    return node.run.model_copy(
        update={"artifacts": tuple(_called(each, node.name) for each in node.run.artifacts)}
    )


def diagnosis_of(node: NodeRecord) -> Diagnosis | None:
    found = artifact_of(node)
    return found.report.diagnosis if found is not None else None


def reason_of(node: NodeRecord) -> str:
    """Why a node failed, without its name."""
    made = artifact_of(node)
    if node.failure is not None:
        return spell_as_keys(node.failure.message)
    return made.report.reason if made is not None else node.why


def sentence_of(node: NodeRecord) -> str:
    """Why a node failed, as the command line says it."""
    made = artifact_of(node)
    if node.failure is not None or made is None:
        return f"{node.name}: {reason_of(node)}"
    return "; ".join(
        (f"{accusation(made.report)}: {made.report.reason}", *map(spell_as_keys, ways_out(made.report)))
    )


def lines(sentence: str) -> list[str]:
    """A sentence's lines as text: ours are the line breaks, names out of files may hold anything."""
    return [text(line) for line in sentence.split("\n")]


def totals(report: PipelineReport) -> str:
    """ "5 artefacts, 4 proven, 1 over budget; 2 made, 3 from the cache; 12.3 s"."""
    verdicts = Counter(cell.verdict for cell in report.cells)
    counted = [f"{verdicts[each]} {each}" for each in reversed(_WORST_FIRST) if verdicts[each]]
    origins = Counter(row.node.status for row in rows(report))
    known = (("made", "made"), ("cached", "from the cache"))
    came = [f"{origins[status]} {said}" for status, said in known if origins[status]]  # type: ignore[index]
    parts = (
        ", ".join((wording.count(len(report.cells), "artefact"), *counted)),
        ", ".join(came),
        f"{report.seconds:.1f} s",
    )
    return "; ".join(part for part in parts if part)


def environment(report: PipelineReport) -> dict[str, str]:
    """What the run and its stages ran with: versions, which the cache's keys hold to those of now, and the machine."""
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
    """What a cell comes to, as pairs of a label and its text; those that there are."""
    every = {
        "verdict": row.cell.verdict,
        "size": row.size,
        "accuracy": row.accuracy,
        "worst": row.worst,
        "speed": wording.speed(row.latency) if row.latency is not None else "",
        "origin": origin(row.node),
        "path": row.cell.path or "",
    }
    yield from ((label, text(said)) for label, said in every.items() if said)
    for limit in row.cell.limits:
        yield limit.name, text(limit.said)


def origin(node: NodeRecord) -> str:
    """Where a node's product came from."""
    return {"made": "made", "cached": "from the cache"}.get(node.status, node.status)


def _culprit(node: NodeRecord, nodes: dict[str, NodeRecord]) -> NodeRecord | None:
    at: NodeRecord | None = node
    while at is not None and not failed(at):
        at = nodes.get(at.after)
    return at


def _called(made: ArtifactRecord, name: str) -> ArtifactRecord:
    candidate = made.report.candidate.model_copy(update={"path": name})
    update = {
        "path": name if made.path is not None else None,
        "companions": tuple(
            each.model_copy(update={"path": PurePath(each.path).name}) for each in made.companions
        ),
        "report": made.report.model_copy(update={"candidate": candidate}),
        "notes": tuple(map(spell_as_keys, made.notes)),
    }
    return made.model_copy(update=update)

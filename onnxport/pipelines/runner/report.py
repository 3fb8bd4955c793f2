"""The report of a run: its product, the verdict and the times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.formats.artifact import FORMATS, Artifact, Staging
from onnxport.formats.manifest import MAIN
from onnxport.pipelines.environment import describe
from onnxport.pipelines.runner.clock import Clock
from onnxport.pipelines.stages import Product
from onnxport.reports.run_report import (
    ArtifactRecord,
    ConsultedRecord,
    FileRecord,
    RunReport,
    SourceRecord,
    Worth,
    exit_code_of,
)

if TYPE_CHECKING:
    from onnxport.validate.report import Report


@dataclass(frozen=True)
class Outcome:
    """The result of a job: its product and the verdict.

    Attributes:
        target: the name of the last stage.
        libraries: distributions that took part.
        functions: the reports on the further functions of a package, by name.
        speedup: the time of a lower precision beside float.
        consulted: the user's code that took part in an export.
    """

    origin: SourceRecord
    target: str
    product: Product
    report: Report
    libraries: Collection[str]
    functions: Mapping[str, Report] = field(default_factory=dict)
    speedup: Worth | None = None
    consulted: ConsultedRecord | None = None

    @property
    def passed(self) -> bool:
        return self.report.passed and all(report.passed for report in self.functions.values())

    def renamed(self, final: Path | None) -> Outcome:
        """Return the outcome with the name of its final file: a large ONNX model names its data file after itself.

        Its digest changes with the names.
        """
        artifact = self.product.artifact
        has_data_file = artifact.format == "onnx" and artifact.companions
        if final is None or not has_data_file or final.name == artifact.path.name:
            return self
        from onnxport.formats.model import rename

        artifact = rename(artifact, final.name)
        candidate = self.report.candidate.model_copy(update={"digest": artifact.digest()})
        report = self.report.model_copy(update={"candidate": candidate})
        return replace(self, product=replace(self.product, artifact=artifact), report=report)

    def run_report(self, command: Sequence[str], final: Path | None, clock: Clock) -> RunReport:
        """Return the report of the run; `final` is None if the product is dropped."""
        record = record_of(self.product, final, self.target, self.report, self.origin, clock, self.speedup)
        records = _function_records(record, self.functions)
        report = run_report(command, self.origin, records, self.libraries, clock)
        return report if self.consulted is None else report.model_copy(update={"consulted": self.consulted})


def final_path(file: Path, artifact: Artifact, final: Path) -> Path:
    """Return where `file` goes when the main file goes to `final`: beside it, with its stem if it had that before."""
    name, stem = file.name, artifact.path.stem
    if name.startswith(stem):
        name = final.stem + name.removeprefix(stem)
    return final.parent / file.relative_to(artifact.path.parent).with_name(name)


def moves(artifact: Artifact, final: Path) -> dict[Path, Path]:
    """Return each file of a staged artefact with its final path, the main file last."""
    return {file: final_path(file, artifact, final) for file in (*artifact.companions, artifact.path)}


def commit(staging: Staging, artifact: Artifact, final: Path) -> None:
    """Move a staged artefact to its place."""
    if artifact.is_folder:
        staging.commit_folder(artifact.path, final)
    else:
        staging.commit(moves(artifact, final))


def record_of(
    product: Product,
    final: Path | None,
    target: str,
    report: Report,
    origin: SourceRecord,
    clock: Clock,
    worth: Worth | None = None,
) -> ArtifactRecord:
    """Return the record of a product under its final name; `final` is None if it is dropped."""
    artifact = product.artifact
    place = final or Path(artifact.path.name)
    candidate = report.candidate.model_copy(update={"path": str(place)})
    return ArtifactRecord(
        path=None if final is None else str(final),
        target=target,
        format=artifact.format,
        size=artifact.size,
        ratio=round(artifact.size / origin.size, 4) if origin.size else None,
        digest=report.candidate.digest,
        companions=tuple(
            FileRecord(path=str(final_path(file, artifact, place)), size=file.stat().st_size)
            for file in artifact.companions
        ),
        report=report.model_copy(update={"candidate": candidate}),
        timings=tuple(clock.timings),
        notes=(*product.notes, *report.notes),
        facts=dict(product.facts),
        worth=worth,
    )


def _function_records(main: ArtifactRecord, further: Mapping[str, Report]) -> tuple[ArtifactRecord, ...]:
    """Return the record of a package once per function; `further` are the reports on the others than `main`."""
    if not further:
        return (main,)
    records = [main.model_copy(update={"function": MAIN})]
    for name, report in further.items():
        candidate = report.candidate.model_copy(update={"path": main.report.candidate.path})
        report = report.model_copy(update={"candidate": candidate})
        records.append(main.model_copy(update={"function": name, "report": report, "notes": report.notes}))
    return tuple(records)


def relocate(
    report: RunReport, place: Path, origin: Path, *, is_there: bool, digest: str | None = None
) -> RunReport:
    """Return the report of another run with the paths of this one.

    Args:
        place: where the artefact is now if it `is_there`, or would be.
        origin: the model that it was made of.
        digest: of the artefact, if its files name each other and so differ at `place`.
    """
    source = report.source.model_copy(update={"path": str(origin)})
    return report.model_copy(
        update={
            "source": source,
            "artifacts": tuple(
                _relocate_record(each, report.source.path, place, origin, is_there, digest or each.digest)
                for each in report.artifacts
            ),
        }
    )


def _relocate_record(
    record: ArtifactRecord, before: str, place: Path, origin: Path, is_there: bool, digest: str
) -> ArtifactRecord:
    report = record.report
    main = Path(record.path or report.candidate.path)
    artifact = Artifact(main, FORMATS[main.suffix])
    candidate = report.candidate.model_copy(update={"path": str(place), "digest": digest})
    reference = report.reference
    if reference.path == before:
        reference = reference.model_copy(update={"path": str(origin)})
    return record.model_copy(
        update={
            "path": str(place) if is_there else None,
            "digest": digest,
            "companions": tuple(
                each.model_copy(
                    update={"path": str(final_path(main.parent / Path(each.path).name, artifact, place))}
                )
                for each in record.companions
            ),
            "report": report.model_copy(update={"candidate": candidate, "reference": reference}),
        }
    )


def run_report(
    command: Sequence[str],
    origin: SourceRecord,
    records: tuple[ArtifactRecord, ...],
    libraries: Iterable[str],
    clock: Clock,
) -> RunReport:
    return RunReport(
        command=command[0],
        arguments=tuple(command[1:]),
        source=origin,
        artifacts=records,
        seconds=clock.seconds,
        environment=describe(sorted(libraries)),
        exit_code=exit_code_of(records),
    )

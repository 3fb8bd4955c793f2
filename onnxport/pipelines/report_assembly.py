"""The report of a run, put together from what it made, what the judge said and how long it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.formats.artifact import FORMATS, Artifact
from onnxport.formats.manifest import MAIN
from onnxport.pipelines.environment import describe
from onnxport.pipelines.stages import Product
from onnxport.pipelines.step_times import Clock
from onnxport.reports.run_report import (
    ArtifactRecord,
    FileRecord,
    RunReport,
    SourceRecord,
    Worth,
    exit_code_of,
)

if TYPE_CHECKING:
    from onnxport.validate.report import Report


def placed(file: Path, artifact: Artifact, final: Path) -> Path:
    """Where `file` is when the main file is at `final`: beside it, and with its stem if it had that before."""
    name, stem = file.name, artifact.path.stem
    if name.startswith(stem):
        name = final.stem + name.removeprefix(stem)
    return final.parent / file.relative_to(artifact.path.parent).with_name(name)


def moves(artifact: Artifact, final: Path) -> dict[Path, Path]:
    """Each file of a staged artefact and where it goes, the main file last."""
    files = (*artifact.companions, artifact.path)
    return {file: placed(file, artifact, final) for file in files}


def named_for(product: Product, report: Report, final: Path | None) -> tuple[Product, Report]:
    """A product under the name that its main file is to have: a large ONNX model names its data file, called after it.

    The report has another digest then, since that is of names as well.
    """
    artifact = product.artifact
    if (
        final is None
        or artifact.format != "onnx"
        or not artifact.companions
        or final.name == artifact.path.name
    ):
        return product, report
    from onnxport.formats.model import renamed

    artifact = renamed(artifact, final.name)
    candidate = report.candidate.model_copy(update={"digest": artifact.digest()})
    return replace(product, artifact=artifact), report.model_copy(update={"candidate": candidate})


def record_of(
    product: Product,
    final: Path | None,
    target: str,
    report: Report,
    origin: SourceRecord,
    clock: Clock,
    worth: Worth | None = None,
) -> ArtifactRecord:
    """The record of a product under the name that it is to have; `final` is None if it is dropped."""
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
            FileRecord(path=str(placed(file, artifact, place)), size=file.stat().st_size)
            for file in artifact.companions
        ),
        report=report.model_copy(update={"candidate": candidate}),
        timings=tuple(clock.timings),
        notes=(*product.notes, *report.notes),
        facts=dict(product.facts),
        worth=worth,
    )


def function_records(main: ArtifactRecord, further: Mapping[str, Report]) -> tuple[ArtifactRecord, ...]:
    """The record of a package, once for each of its functions; `further` are the reports on those beside `main`."""
    if not further:
        return (main,)
    place = main.report.candidate.path
    others = []
    for name, report in further.items():
        candidate = report.candidate.model_copy(update={"path": place})
        report = report.model_copy(update={"candidate": candidate})
        update = {"function": name, "report": report, "notes": report.notes}
        others.append(main.model_copy(update=update))
    return (main.model_copy(update={"function": MAIN}), *others)


def located(
    report: RunReport, place: Path, origin: Path, *, is_there: bool, digest: str | None = None
) -> RunReport:
    """The report of a run that was another's, as if it had been this one's.

    Args:
        place: where the artefact is now, or would have come to be.
        origin: the model that it was made of.
        is_there: whether it is at `place`.
        digest: of the artefact where it has another one there, as of an ONNX file that names its data file.
    """
    source = report.source.model_copy(update={"path": str(origin)})
    return report.model_copy(
        update={
            "source": source,
            "artifacts": tuple(
                _located(each, report.source.path, place, origin, is_there, digest or each.digest)
                for each in report.artifacts
            ),
        }
    )


def _located(
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
                    update={"path": str(placed(main.parent / Path(each.path).name, artifact, place))}
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

"""Weights & Biases: a run for each entry in a project; WANDB_MODE=offline keeps it in a folder."""

from __future__ import annotations

from onnxport.reports.trackers.entries import Entry


def require() -> None:
    import wandb  # noqa: F401


def log(project: str, entry: Entry, document: str) -> None:
    import wandb

    run = wandb.init(
        project=project,
        name=entry.name,
        config=dict(entry.params),
        job_type="onnxport",
        reinit="create_new",
        settings=wandb.Settings(silent=True),
    )
    run.log(dict(entry.metrics))
    report = wandb.Artifact("onnxport-report", type="report")
    with report.new_file("report.json") as file:
        file.write(document)
    run.log_artifact(report)
    run.finish(exit_code=0 if entry.passed else 1)

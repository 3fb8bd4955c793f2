"""MLflow: a run for each entry in an experiment, at MLFLOW_TRACKING_URI."""

from __future__ import annotations

import re

from onnxport.reports.trackers.entries import Entry

_LONGEST = 500  # characters of a parameter that every store takes


def require() -> None:
    import mlflow  # noqa: F401


def log(project: str, entry: Entry, document: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name(project)
    number = client.create_experiment(project) if experiment is None else experiment.experiment_id
    run = client.create_run(number, run_name=entry.name).info.run_id
    for name, value in entry.params.items():
        client.log_param(run, name, value[:_LONGEST])
    for name, figure in entry.metrics.items():
        client.log_metric(run, re.sub(r"[^\w\-. /]", "_", name), figure)
    client.log_text(run, document, "report.json")
    client.set_terminated(run, "FINISHED" if entry.passed else "FAILED")

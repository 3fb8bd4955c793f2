"""A model's graph and the findings about it as files for Model Explorer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact, Staging, writing
from onnxport.reports.model_view.graphs import document, read_graphs
from onnxport.reports.model_view.overlays import Overlay, precision


def export_views(models: Sequence[Artifact], overlays: Sequence[Overlay], folder: Path) -> list[Path]:
    """Write NAME.graph.json for each model, and NAME.FINDING.json for each finding about its nodes.

    Args:
        folder: a new folder; the files appear together or not at all.

    Returns:
        The files, the graph of each model before its findings.

    Raises:
        UsageError: the folder exists, two models have one name, or one is a Core ML package.
        InputError: a model is damaged.
    """
    if folder.exists():
        raise UsageError(f"{folder} exists", fix="give --export a new folder, or remove it")
    names = [model.path.name for model in models]
    if len(set(names)) < len(names):
        raise UsageError("two models have the same file name", fix="export them to folders of their own")
    files: dict[str, Any] = {}
    for model in models:
        graphs = read_graphs(model)
        files[f"{model.path.name}.graph.json"] = document(model.path.name, graphs)
        for number, overlay in enumerate((precision(graphs), *overlays)):
            if overlay.concerns(model) and (found := overlay.document(graphs)):
                name = f"{model.path.name}.{_slug(overlay.name)}.json"
                files[name if name not in files else f"{name[:-5]}-{number}.json"] = found
    with Staging(folder, "--export", folder=True) as staging:
        made = staging.folder / folder.name
        with writing(folder, "--export"):
            made.mkdir()
            for name, content in files.items():
                (made / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        staging.commit_folder(made, folder)
    return [folder / name for name in files]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")

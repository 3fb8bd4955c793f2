"""Takes a product from the cache to where the user wants it."""

from __future__ import annotations

import shutil
from pathlib import Path

from onnxport.artifact import Artifact, Staging
from onnxport.pipelines.cache import Entry
from onnxport.pipelines.records import moves


def deliver(entry: Entry, output: Path) -> None:
    """Copies the product to `output`, whole or not at all; what is there already and the same stays.

    Raises:
        MachineError: it cannot be written.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    source = entry.artifact
    with Staging(output, "output", folder=source.is_folder) as staging:
        if source.is_folder:
            place = staging.folder / output.name
            shutil.copytree(source.path, place)
            staging.commit_folder(place, output)
            return
        for file in source.files:
            shutil.copyfile(file, staging.folder / file.name)
        companions = tuple(staging.folder / file.name for file in source.companions)
        copy = Artifact(staging.folder / source.path.name, source.format, companions)
        if copy.format == "onnx" and companions:
            from onnxport.model import renamed

            copy = renamed(copy, output.name)
        staging.commit(moves(copy, output))

"""Write the generated inputs of a model to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onnxport.core.errors import UsageError
from onnxport.formats.artifact import Artifact, Staging, writing
from onnxport.pipelines.environment import RUNS_ON, require
from onnxport.pipelines.runner.clock import Clock, Progress
from onnxport.pipelines.runner.model_sources import load, reading
from onnxport.pipelines.runner.verdicts import open_judge, start_reference

if TYPE_CHECKING:
    from onnxport.validate.params import SamplesParams
    from onnxport.validate.sample_files import SampleFiles


def write_samples(
    model: Artifact, folder: Path, params: SamplesParams, progress: Progress | None = None
) -> SampleFiles:
    """Write what a validation of `model` would feed, all files or none.

    Raises:
        UsageError: the folder exists, or the model runs at no sizes.
    """
    from onnxport.validate.params import ValidateParams
    from onnxport.validate.sample_files import write_sample_files

    if folder.exists():
        raise UsageError(f"{folder} exists", fix="give the name of a new folder with -o")
    clock = Clock(progress)
    require(RUNS_ON[model.format], f"running {model.path}")
    own = ValidateParams.model_validate(params.model_dump())
    graph = None
    with start_reference(model, own) as runtime, reading(model), Staging(folder, folder=True) as staging:
        if model.format == "onnx":
            graph, model = load(model)
        with clock.phase("generate"), open_judge(model, own, runtime, graph, None, tell=clock.tell) as judge:
            staged = staging.folder / "samples"
            with writing(folder):
                staged.mkdir()
                found = write_sample_files(judge.reference, staged)
        staging.commit_folder(staged)
    return found.model_copy(update={"folder": str(folder)})

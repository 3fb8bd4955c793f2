"""A run that makes nothing: where the time of a model goes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxport.formats.artifact import Artifact
from onnxport.pipelines.environment import RUNS_ON, require
from onnxport.pipelines.model_sources import reading, unchanged
from onnxport.pipelines.step_times import Clock, Progress

if TYPE_CHECKING:
    from onnxport.profiling.params import ProfileParams
    from onnxport.profiling.profile import Profile


def profile(
    artifact: Artifact,
    params: ProfileParams,
    progress: Progress | None = None,
    arguments: Sequence[str] = (),
) -> Profile:
    """Profiles `artifact`; changes no file."""
    from onnxport.profiling import profile as room

    room.check_profiler(artifact)
    sources = [] if params.source is None else [Artifact.open(params.source)]
    for each in (artifact, *sources):
        require(RUNS_ON[each.format], f"profiling {artifact.path}")
    with Clock(progress).phase("profile"), reading(artifact), unchanged(artifact, *sources):
        return room.profile(artifact, params, shlex.join(("onnxport", "profile", *arguments)))

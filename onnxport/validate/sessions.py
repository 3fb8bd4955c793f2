"""The runtimes of both sides of a proof, each in a process of its own, under the user's settings."""

from __future__ import annotations

from onnxport.formats.artifact import Artifact
from onnxport.runtimes.memory_limit import MemoryLimit
from onnxport.runtimes.process import IsolatedRuntime, Role
from onnxport.runtimes.settings import runtime_options
from onnxport.validate.params import ValidateParams


def isolated(artifact: Artifact, params: ValidateParams, role: Role) -> IsolatedRuntime:
    """The runtime of one of the two sides under the user's settings; its process starts at once.

    Raises:
        UsageError: settings that the runtime does not know.
        MissingDependencyError: the runtime that is asked for is not installed.
    """
    option = f"--{role}-runtime"
    given = params.reference_runtime if role == "reference" else params.candidate_runtime
    options = runtime_options(artifact.format, given, option)
    return IsolatedRuntime(
        artifact.path,
        options,
        timeout=params.timeout,
        limit=lambda: MemoryLimit.of(params.memory_limit, artifact),
        role=role,
    )

"""Intermediate values of an `.ort` file, which shows none: a copy of it names them as outputs.

The graph in such a file has its optimizations behind it, and ONNX Runtime changes it no more when it is loaded; so the
copy runs the same kernels in the same order as the file itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from onnxport.core.arrays import Array, Feeds
from onnxport.core.errors import InputError
from onnxport.core.resources import Closing
from onnxport.formats import ort_file
from onnxport.formats.artifact import Artifact, TensorSpec
from onnxport.runtimes.base import Runtime, check_taps
from onnxport.validate.params import ValidateParams
from onnxport.validate.sessions import isolated


def tappable(candidate: Artifact, params: ValidateParams) -> Runtime:
    """The candidate's runtime in a process of its own, with taps where there is a way to have them."""
    if candidate.format == "ort":
        return SealedRuntime(candidate, params)
    return isolated(candidate, params, "candidate")


class SealedRuntime(Closing):
    """An `.ort` file as a Runtime that shows the values of its main graph."""

    def __init__(self, artifact: Artifact, params: ValidateParams) -> None:
        self._artifact, self._params = artifact, params
        self._plain = isolated(artifact, params, "candidate")

    @property
    def name(self) -> str:
        return self._plain.name

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._plain.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._plain.outputs

    @cached_property
    def taps(self) -> frozenset[str]:
        graph = self._session()["model"]["graph"]
        made = {name.decode() for node in graph.get("nodes", ()) for name in node.get("outputs", ()) if name}
        return frozenset(made - {spec.name for spec in self.outputs})

    def run(self, feeds: Feeds, *, taps: Sequence[str] = ()) -> dict[str, Array]:
        """See `Runtime.run`; every new choice of taps writes and loads a copy of the file."""
        check_taps(self.taps, taps, str(self._artifact.path))
        if not taps:
            return self._plain.run(feeds)
        session = self._session()
        session["model"]["graph"]["outputs"] += [name.encode() for name in taps]
        with tempfile.TemporaryDirectory(prefix="onnxport-") as folder:
            copy = Path(folder, self._artifact.path.name)
            copy.write_bytes(ort_file.write(session))
            with isolated(Artifact(copy, "ort"), self._params, "candidate") as opened:
                return opened.run(feeds)

    def close(self) -> None:
        self._plain.close()

    def _session(self) -> ort_file.Table:
        try:
            return ort_file.read(self._artifact.path.read_bytes())
        except ValueError as error:
            raise InputError(f"{self._artifact.path} cannot be read", why=str(error)) from error

"""The reference of a float artefact that was made of a dynamically quantized model: the model in float arithmetic.

Such a source rounds its activations to grids that it measures in every run. An artefact in float arithmetic leaves
these roundings out, and differs from the source by all of them. From the source without them it differs by float32
noise alone, which proves it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from onnxport.core.arrays import Array, Feeds
from onnxport.core.resources import Closing
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate.params import ValidateParams
from onnxport.validate.precision import has_rounding
from onnxport.validate.progress import Tell
from onnxport.validate.reference import Reference
from onnxport.validate.report import Precision
from onnxport.validate.sessions import isolated

AGAINST = "the reference without its run-time quantization"
_FLOAT = frozenset[Precision]({"float32", "float64", "int8 weights", "int4 weights"})


class FloatReference(Closing):
    """A dynamically quantized reference in float arithmetic, made when it is first needed.

    Args:
        params, tell: those of the judge.
    """

    def __init__(self, params: ValidateParams, tell: Tell | None) -> None:
        self._params, self._tell = params, tell
        self._made: Reference | None = None
        self._model: Model | None = None
        self._folder: ScratchFolder | None = None

    def replaces(self, source: Reference, candidate: Artifact, precision: Precision) -> bool:
        """Return whether a candidate of `precision` computes the source in float arithmetic.

        A candidate that rounds as the source does is compared with the source itself.
        """
        if not _is_dynamic(source) or precision not in _FLOAT or has_rounding(candidate):
            return False
        return self._in_floats(source) is not None

    def replaces_in(self, source: Reference, candidate: Model) -> bool:
        """Return the same for a model in memory."""
        from onnxport.validate.float_arithmetic import DYNAMIC

        if not _is_dynamic(source) or any(node.op_type in DYNAMIC for node in candidate.graph.all_nodes()):
            return False
        return self._in_floats(source) is not None

    def of(self, source: Reference) -> Reference:
        """Return the source in float arithmetic, with answers and noise; `replaces` comes first."""
        if self._made is None:
            assert self._model is not None, "the source has float arithmetic"
            self._folder = ScratchFolder()
            saved = self._model.save(Path(self._folder.name, "reference.onnx"))
            artifact = Artifact.open(saved.path)
            runtime = isolated(artifact, self._params, "reference")
            self._made = Reference(
                artifact,
                self._params,
                runtime,
                self._model,
                self._tell,
                against=AGAINST,
                precision="int8 weights",
            )
            self._made.prepare()
        return self._made

    def notes(self, source: Reference, used: Reference) -> Iterator[str]:
        """Yield how far the source's own run-time quantization moves its answers, if it was left out."""
        if used is not self._made:
            return
        lowest: dict[str, float] = {}
        for ours, theirs in zip(used.sets, source.sets, strict=False):
            if ours.kept is None or theirs.kept is None or not _are_same(ours.kept[0], theirs.kept[0]):
                continue
            for name, answer in ours.kept[1].items():
                if answer.dtype.kind == "f":
                    lowest[name] = min(lowest.get(name, np.inf), _sqnr(answer, theirs.kept[1][name]))
        figures = ", ".join(
            f"{name!r} {level:.1f} dB" for name, level in lowest.items() if np.isfinite(level)
        )
        yield (
            "the reference quantizes activations when it runs, the artefact does not: it was compared with the "
            "reference in float arithmetic"
        ) + (f"; SQNR between the two: {figures}" if figures else "")

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _in_floats(self, source: Reference) -> Model | None:
        from onnxport.validate.float_arithmetic import in_float_arithmetic

        if self._model is None and source.graph is not None:
            self._model = in_float_arithmetic(source.graph)
        return self._model


def _is_dynamic(source: Reference) -> bool:
    return source.precision == "int8 dynamic" and source.artifact.format == "onnx"


def _are_same(first: Feeds, second: Feeds) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(array, second[name], equal_nan=array.dtype.kind == "f")
        for name, array in first.items()
    )


def _sqnr(answer: Array, other: Array) -> float:
    """Return 10 log10(sum answer^2 / sum difference^2) in dB."""
    signal = float(np.square(answer, dtype=np.float64).sum())
    noise = float(np.square(answer.astype(np.float64) - other).sum())
    return 10 * math.log10(signal / noise) if signal and noise else math.inf

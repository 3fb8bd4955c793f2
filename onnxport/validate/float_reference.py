"""The reference of a float artefact that was made of a dynamically quantized model: the model in float arithmetic.

Such a source rounds its activations to grids that it measures in every run. An artefact in float arithmetic leaves
these roundings out, and differs from the source by all of them. From the source without them it differs by float32
noise alone, which proves it. How far the roundings move the answers is a second question, of quality: some networks
answer something else without them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from onnxport.core.arrays import Feeds
from onnxport.core.resources import Closing
from onnxport.core.scratch import ScratchFolder
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.validate.budgets import Budgets, apply_budgets
from onnxport.validate.custom_metrics import Averages
from onnxport.validate.noise_runs import Answers
from onnxport.validate.params import ValidateParams
from onnxport.validate.precision import count_roundings, read_dynamic_quantization
from onnxport.validate.progress import Tell
from onnxport.validate.reference import Reference
from onnxport.validate.report import Judgement, Precision
from onnxport.validate.sessions import isolated

if TYPE_CHECKING:
    from onnxport.validate.quality import Floor

AGAINST = "the reference without its run-time quantization"
# dB, of all ordinary sets together. Trained models in float arithmetic keep 19 to 45 against their own run-time
# quantization; on companions even models that keep 19 and 30 have 0 and 9.
LEAST_SQNR = 10.0
_FLOAT = frozenset[Precision]({"float32", "float64", "int8 weights", "int4 weights"})
_NARROW = frozenset[Precision]({"float16", "float16 weights", "bfloat16", "bfloat16 weights"})
_LEFT_OUT = (
    "the artefact computes without the model's run-time quantization; convert with --dynamic-quantization keep, which "
    "takes longer to run, or with --dynamic-quantization float to accept the difference"
)

# What became of the source's run-time quantization: "" for a source without any, or a candidate that quantizes as it
# does; "kept" in small operators; left out ("float"); left out as the user asked ("accepted").
Form = Literal["", "float", "accepted", "kept"]


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

    def form_of(
        self, source: Reference, candidate: Artifact, precision: Precision, function: str = ""
    ) -> Form:
        """Return what a candidate of `precision` made of the source's run-time quantization.

        Our artefacts note what the user chose. Others keep it if they round more often than the source does itself.
        """
        if not _is_dynamic(source) or precision not in _FLOAT | _NARROW:
            return ""
        noted = read_dynamic_quantization(candidate, function)
        if noted:
            return "kept" if noted == "keep" else "accepted"
        return "kept" if count_roundings(candidate) > _count_roundings(source.graph) else "float"

    def replaces(self, source: Reference, form: Form, precision: Precision) -> bool:
        """Return whether the source in float arithmetic is the reference of a candidate of this form."""
        if form not in ("float", "accepted") or precision not in _FLOAT:
            return False
        return self._in_floats(source) is not None

    def replaces_in(self, source: Reference, candidate: Model) -> bool:
        """Return the same for a model in memory."""
        from onnxport.validate.float_arithmetic import DYNAMIC

        if not _is_dynamic(source) or any(node.op_type in DYNAMIC for node in candidate.graph.all_nodes()):
            return False
        if _count_roundings(candidate) > _count_roundings(source.graph):  # it is kept, in other operators
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

    def without_run_time_quantization(self, source: Reference) -> Reference | None:
        """Return the source in float arithmetic; itself without run-time quantization, None where some is kept."""
        if not _is_dynamic(source):
            return source
        return None if self._in_floats(source) is None else self.of(source)

    def judgement(self, source: Reference, form: Form, budgets: Budgets) -> tuple[Judgement, str]:
        """Return the judgement on what the missing run-time quantization changes, and a note; `of` comes first."""
        # Imported here, as below: most references have no run-time quantization.
        from onnxport.validate.quality import Floor, Quality, sqnr

        assert self._made is not None, "the source has float arithmetic"
        # Its evidence is that of fidelity; noise between integers proves nothing more.
        quality = Quality(self._made, self._params, floor=floor_of(form, self._params) or Floor())
        averages = Averages(budgets.user)
        lowest = (math.inf, "", "")  # of companions, which are no inputs that a user has
        for number, fed in enumerate(self._made.sets):
            feeds, answers = self._made.answers(fed)
            own = self._own_answers(source, number, feeds)
            if fed.is_between:
                continue
            if fed.adversarial:
                lowest = min(lowest, *((sqnr(own[name], answers[name]), name, fed.label) for name in answers))
                continue
            quality.add(fed, own, answers)
            averages.add(fed.label, own, answers)
        found = quality.judgement().model_copy(
            update={"against": source.against, "metrics": averages.figures}
        )
        return apply_budgets(found, budgets), _note(form, *lowest)

    def _own_answers(self, source: Reference, number: int, feeds: Feeds) -> Answers:
        """Return the source's answers to a set, which it has unless its own sets are others."""
        if number < len(source.sets):
            known, answers = source.answers(source.sets[number])
            if _are_same(known, feeds):
                return answers
        return source.run(feeds)

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


def floor_of(form: Form, params: ValidateParams) -> Floor | None:
    """Return the floor of quality for a candidate of this form; None for that of every lower precision.

    A budget of the user's on SQNR replaces that of float arithmetic.
    """
    if form == "":
        return None
    from onnxport.validate.quality import Floor

    has_budget = any(text.rpartition(":")[2] == "sqnr" for text in params.budget)
    if form == "accepted" or (form == "float" and has_budget):
        return Floor(-math.inf)
    return Floor(LEAST_SQNR, _LEFT_OUT) if form == "float" else Floor(LEAST_SQNR)


def _note(form: Form, lowest: float, name: str, label: str) -> str:
    """Return the note on a candidate that was compared with the source in float arithmetic."""
    asked = ", as --dynamic-quantization float asks" if form == "accepted" else ""
    extreme = f"; on {label}, of extreme values, {name!r} is {lowest:.1f} dB SQNR from the reference itself"
    return (
        f"the reference quantizes activations when it runs, the artefact does not{asked}: it was compared with the "
        "reference in float arithmetic"
    ) + (extreme if lowest < LEAST_SQNR else "")


def _count_roundings(graph: Model | None) -> int:
    return 0 if graph is None else sum(node.op_type == "Round" for node in graph.graph.all_nodes())


def _is_dynamic(source: Reference) -> bool:
    return source.precision == "int8 dynamic" and source.artifact.format == "onnx"


def _are_same(first: Feeds, second: Feeds) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(array, second[name], equal_nan=array.dtype.kind == "f")
        for name, array in first.items()
    )

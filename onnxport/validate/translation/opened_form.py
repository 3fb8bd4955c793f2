"""Open a converted form as what a proof compares, for those who show what became of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxport.core.arrays import Feeds
from onnxport.formats.artifact import Artifact
from onnxport.formats.model import Model
from onnxport.formats.ort_model import load_ort
from onnxport.validate.translation.proof import Artefact, OnnxArtefact


@dataclass(frozen=True)
class Opened:
    """A form at the sizes of one set of inputs.

    Attributes:
        artefact: its normal form.
        model: the form in ONNX's operators, before its normal form.
        feeds: that set.
        operators: what gives a value in the form's own words, "CONV_2D 'relu1'", by the value's name there.
    """

    artefact: Artefact
    model: Model
    feeds: Feeds
    operators: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        return {name: array.shape for name, array in self.feeds.items()}

    def label(self, value: ir.Value) -> str:
        """Return the operator behind a value of the normal form, in the form's own words."""
        node = value.producer()
        if node is None:
            return repr(value.name)
        # What stands around an operator, and what is made of one, has its name in front.
        name = node.name or ""
        while name not in self.operators and "/" in name:
            name = name.rpartition("/")[0]
        return self.operators.get(name, f"{node.op_type} {node.name or value.name!r}")


Sizes = Mapping[str, Sequence[int]]


def open_form(form: Artifact, sets: Sequence[Feeds], settle: Callable[[Model, Sizes], Model]) -> Opened:
    """Open a form at the sizes of the first set that it takes.

    Args:
        settle: rewrites a model of ONNX's operators for sizes of its inputs.

    Raises:
        InputError: it is damaged, or takes images or keeps a state.
        RunError: its runtime cannot run it.
    """
    # Imported here: they need LiteRT and coremltools.
    if form.format == "tflite":
        from onnxport.validate.translation.tflite.artefact import TfliteArtefact, fitting_set

        feeds = fitting_set(form.path, sets)
        file = TfliteArtefact(form.path, feeds)
        return Opened(file, file.lifted, feeds, file.operators)
    if form.format == "coreml":
        from onnxport.validate.translation.mlpackage.artefact import MilArtefact

        package = MilArtefact(form.path, sets[0])
        return Opened(package, package.lifted, sets[0], package.operators)
    sizes = {name: array.shape for name, array in sets[0].items()}
    model = settle(Model.load(form.path) if form.format == "onnx" else load_ort(form.path), sizes)
    return Opened(OnnxArtefact(model, sizes), model, sets[0])

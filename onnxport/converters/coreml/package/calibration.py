"""The declaration of a quantized model's calibration, by the names that its values have in a package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxport.formats.manifest import Tap
from onnxport.formats.model import Model
from onnxport.formats.quantization_note import NOTE_KEY, QuantizationNote, round_means

_QUANTIZED = ".quantized"


@dataclass(frozen=True)
class Calibration:
    """The calibration that a model declares.

    Attributes:
        note: the declaration, by ONNX names.
        results: a product's name to the values that it may be stored as: its own, and those of what is fused into it.
    """

    note: QuantizationNote
    results: Mapping[str, Sequence[str]]

    @classmethod
    def of_model(cls, model: Model) -> Calibration | None:
        """Return a model's declaration; None without one."""
        note = QuantizationNote.from_json(model.ir.metadata_props.get(NOTE_KEY))
        if note is None:
            return None
        products = (node for node in model.graph if node.name in note.means)
        return cls(note, {node.name or "": tuple(_results(node.outputs[0])) for node in products})

    def to_json(self, taps: Mapping[str, Tap]) -> str:
        """Return the declaration as JSON: means by a product's variable, ranges by that of their integers."""
        ranges = {
            taps[name + _QUANTIZED].key: ends
            for name, ends in self.note.ranges.items()
            if name + _QUANTIZED in taps
        }
        means = {}
        for product, results in self.results.items():
            name = next((each for each in results if each in taps), None)
            if name is not None:
                means[taps[name].key] = round_means(self.note.means[product])
        return QuantizationNote(ranges, means, self.note.factors).to_json()


def _results(value: ir.Value) -> Iterator[str]:
    """Yield a product's value, and those after it that a pass may fuse into it."""
    while True:
        yield value.name or ""
        users = list(value.uses())
        if len(users) != 1 or value.is_graph_output():
            return
        user = users[0][0]
        if user.op_type == "QuantizeLinear" or len(user.outputs) != 1:
            return
        if any(
            each is not None and each is not value and each.producer() is not None for each in user.inputs
        ):
            return
        value = user.outputs[0]

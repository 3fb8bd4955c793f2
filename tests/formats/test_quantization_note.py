"""A quantized file declares ranges and means, and what it declares reads back."""

from __future__ import annotations

import numpy as np
import pytest

from onnxport.formats.quantization_note import QuantizationNote, round_means


def test_what_is_declared_reads_back() -> None:
    means = {"conv": round_means(np.array([0.5, -2.0, 1024.0])), "large": round_means(np.array([1e5]))}
    note = QuantizationNote({"x": (-1.0, 0.1)}, means)
    read = QuantizationNote.from_json(note.to_json())
    assert read is not None
    assert read.ranges == {"x": (-1.0, 0.1)}
    assert read.means["conv"].tolist() == [0.5, -2.0, 1024.0]
    assert read.means["large"].tolist() == [1e5]
    assert note.to_json() == QuantizationNote({"x": (-1.0, 0.1)}, dict(reversed(means.items()))).to_json()


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"means": {"a": 1}, "ranges": {}}', "no JSON"])
def test_another_text_declares_nothing(text: str | None) -> None:
    assert QuantizationNote.from_json(text) is None

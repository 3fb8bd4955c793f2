"""A quantized file declares ranges and means, and what it declares reads back."""

from __future__ import annotations

import numpy as np
import pytest

from onnxport.formats.quantization_note import QuantizationNote, round_factors, round_means


def test_what_is_declared_reads_back() -> None:
    means = {"conv": round_means(np.array([0.5, -2.0, 1024.0])), "large": round_means(np.array([1e5]))}
    note = QuantizationNote({"x": (-1.0, 0.1)}, means)
    read = QuantizationNote.from_json(note.to_json())
    assert read is not None
    assert read.ranges == {"x": (-1.0, 0.1)}
    assert read.means["conv"].tolist() == [0.5, -2.0, 1024.0]
    assert read.means["large"].tolist() == [1e5]
    assert note.to_json() == QuantizationNote({"x": (-1.0, 0.1)}, dict(reversed(means.items()))).to_json()


def test_factors_read_back_as_what_divided_the_channels() -> None:
    factors = round_factors(np.array([1.0, 0.011, 0.3, 100.0]))
    read = QuantizationNote.from_json(QuantizationNote(factors={"conv": factors}).to_json())
    assert read is not None
    assert np.array_equal(read.factors["conv"], factors)
    # To the nearest power of the fourth root of 2.
    assert np.allclose(np.log2(factors), [0.0, -6.5, -1.75, 6.75])


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{}",
        '{"means": {"a": 1}, "ranges": {}}',
        "no JSON",
        '{"means": {}, "ranges": {}, "exponents": {"a": 1}}',
    ],
)
def test_another_text_declares_nothing(text: str | None) -> None:
    assert QuantizationNote.from_json(text) is None

"""Texts that an artefact gives as numbers: TFLite and Core ML have no tensors of texts.

The number is the text's position in a list, which the artefact's manifest has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxport.core.arrays import Array

_KEY = "onnxport.texts"  # metadata of a graph output


def note_texts(value: ir.Value, texts: Sequence[str]) -> None:
    """Note at a graph output of integers which texts they stand for; no texts take a note away."""
    value.metadata_props.pop(_KEY, None)
    if texts:
        value.metadata_props[_KEY] = json.dumps(texts)


def read_texts(value: ir.Value) -> tuple[str, ...]:
    """Return the texts that an output's integers stand for; empty for any other value."""
    return tuple(json.loads(value.metadata_props.get(_KEY, "[]")))


def to_texts(numbers: Array, texts: Sequence[str]) -> Array:
    """Return the texts of numbers, [...] of any shape; a number without a text is written as `<number>`."""
    known = range(len(texts))
    named = [texts[int(i)] if i in known else f"<{i}>" for i in np.ravel(numbers).tolist()]
    return np.asarray(named, dtype=object).reshape(np.shape(numbers))

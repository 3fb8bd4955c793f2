"""Ranges by relative error: the least there is, and not led by a few strong places."""

import math
from pathlib import Path

import numpy as np
import pytest

from onnxport.formats.quantization_note import NOTE_KEY, QuantizationNote
from onnxport.quantize.accuracy.ranges import FLOOR, mse_range_of_rows
from tests.quantize.small import case


def relative_error(rows, low, high):
    """Straight from the definition: the mean over places of squared error over mean square."""
    scale = (high - low) / 255
    point = np.rint(-low / scale)
    stored = (np.clip(np.rint(rows / scale) + point, 0, 255) - point) * scale
    strength = np.square(rows).mean(axis=1)
    return (np.square(stored - rows).mean(axis=1) / (strength + FLOOR * strength.mean())).mean()


@pytest.mark.parametrize("relu", [False, True])
def test_the_range_is_the_best_one(relu):
    rng = np.random.default_rng(1)
    strengths = np.exp(rng.normal(size=(600, 1)))
    rows = (rng.laplace(size=(600, 16)) * strengths).astype(np.float32)
    if relu:
        rows = np.maximum(rows, 0)
    low, high = mse_range_of_rows(rows, 256)
    shares = np.linspace(0.05, 1, 60)
    lows = [0.0] if relu else rows.min() * shares
    best = min(relative_error(rows, each, rows.max() * share) for each in lows for share in shares)
    assert relative_error(rows, low, high) < 1.05 * best
    assert best < 0.8 * relative_error(rows, min(0, rows.min()), rows.max())


def test_a_few_strong_places_do_not_take_the_steps_of_all_others():
    rows = np.random.default_rng(2).normal(size=(1000, 32)).astype(np.float32)
    rows[:5] *= 40
    low, high = mse_range_of_rows(rows, 256)
    assert -25 < low < -3
    assert 3 < high < 25  # of 150


@pytest.mark.parametrize("method", ["mse", "auto"])
def test_a_summand_of_a_normalized_sum_keeps_its_ends(method: str, tmp_path: Path) -> None:
    """As in transformers, where a few large channels steer the LayerNorm: PP-OCRv3's recognizer has 4 dB more."""
    random = np.random.default_rng(6)
    weights = {name: random.normal(size=(16, 16)).astype(np.float32) for name in ("w", "v")}
    made = case(
        """<ir_version: 8, opset_import: ["" : 17]>
        network (float[1,40,16] x) => (float[n,t,c] y) {
            a = MatMul (x, v)
            e = Erf (a)
            h = MatMul (e, w)
            s = Add (h, x)
            m = LayerNormalization (s, ones)
            y = MatMul (m, v)
        }""",
        tmp_path,
        initializers={**weights, "ones": np.ones(16, np.float32)},
        method=method,
    )
    note = QuantizationNote.from_json(made.quantized.model.ir.metadata_props[NOTE_KEY])
    assert note is not None
    erf = np.vectorize(math.erf)
    seen = np.stack([erf(each["x"] @ weights["v"]) @ weights["w"] for each in made.feeds])
    np.testing.assert_allclose(note.ranges["h"], (seen.min(), seen.max()), rtol=1e-4)

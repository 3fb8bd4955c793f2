"""Rows in the order of a TopK: right runtimes exchange those whose scores differ by rounding, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxport.validate import order_ties
from tests.validate.models import save, verdict

Array = np.ndarray[Any, np.dtype[Any]]

# Scores p and q that are equal but for rounding, as in test_near_ties.py: rows 0..127 and 128..255.
FORWARD = "p = MatMul (x, w) r = Gather <axis = 1> (x, backward) q = MatMul (r, reversed)"
HALVES = """x0, x1 = Split <axis = 1> (x, halves) p0 = MatMul (x0, top) p1 = MatMul (x1, bottom)
    q = Add (p0, p1) p = Identity (q)"""
SCORES = "u = Concat <axis = 1> (p, q) s = Sigmoid (u)"
# The boxes of the best scores, with the scores, as detectors answer them.
BEST = "v, k = TopK (s, count)"
ROWS = """b = Gather (boxes, k) v3 = Unsqueeze (v, last) d = Concat <axis = 2> (b, v3)
    y = Identity (d)"""
# First the best boxes, then the best of their classes.
TWO_STEPS = """s2 = Reshape (s, classes) m = ReduceMax <axes = [2], keepdims = 0> (s2) mv, mk = TopK (m, anchors)
    e = Unsqueeze (mk, last) t = Tile (e, repeats) g = GatherElements <axis = 1> (s2, t) f = Flatten <axis = 1> (g)
    v, k2 = TopK (f, count) a = Div (k2, two) c = Mod (k2, two) i = GatherElements <axis = 1> (mk, a)
    j = Mul (i, two) k = Add (j, c)"""

LABELS = "y = Gather (labels, k)"


def model(*parts: str) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    weights = (0.2 * rng.standard_normal((64, 128))).astype(np.float32)
    boxes = rng.uniform(0, 640, (256, 4)).astype(np.float32)
    proto = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 13]> g (float[1, 64] x) => (float y) {{ {" ".join(parts)} }}'
    )
    constants = {
        "w": weights,
        "reversed": np.ascontiguousarray(weights[::-1]),
        "top": weights[:32],
        "bottom": weights[32:],
        "backward": np.arange(63, -1, -1),
        "halves": np.array([32, 32]),
        "boxes": boxes,
        "shifted": boxes + np.float32(1),
        "swapped": boxes[np.r_[1, 0, 2:256]],
        "count": np.array([31]),
        "count_all": np.array([256]),
        "last": np.array([2]),
        "classes": np.array([1, 128, 2]),
        "anchors": np.array([41]),
        "repeats": np.array([1, 1, 2]),
        "two": np.array(2),
        "one": np.array([1, 127]),
        "many": np.array([1, 64]),
        "first": np.zeros(31, np.int64),
        "less": np.float32(0.999),
        "labels": rng.permutation(256),
        "others": rng.permutation(256),
    }
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in used
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    if parts[-1] in (LABELS, LABELS.replace("labels", "others")):
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    return onnx.shape_inference.infer_shapes(proto, data_prop=True)


def judged(reference: tuple[str, ...], candidate: tuple[str, ...], folder: Path) -> Any:
    first, second = save(model(*reference), folder / "a.onnx"), save(model(*candidate), folder / "b.onnx")
    return verdict(first, second)


@pytest.mark.parametrize(
    "decided",
    [
        (BEST, ROWS),
        (BEST.replace("count", "count_all"), ROWS),
        ("n = Neg (s) w2, k = TopK <largest = 0> (n, count) v = Neg (w2)", ROWS),
        (TWO_STEPS, ROWS),
        (BEST, "y = Gather (boxes, k)"),
    ],
    ids=["best", "all", "least", "two steps", "boxes alone"],
)
def test_rows_of_scores_within_rounding_may_change_places(decided: tuple[str, ...], tmp_path: Path) -> None:
    report = judged((FORWARD, SCORES, *decided), (HALVES, SCORES, *decided), tmp_path)
    assert report.verdict == "proven", report.reason
    assert "of rows that scores within rounding order otherwise" in report.reason
    assert report.outputs[0].max_abs < 1e-5


@pytest.mark.parametrize(
    "fault",
    [
        (BEST, ROWS.replace("boxes", "shifted")),
        (BEST, ROWS.replace("boxes", "swapped")),
        (BEST, ROWS.replace("y = Identity (d)", "y = Gather <axis = 1> (d, first)")),
        ("s9 = Mul (s, less) v9, k = TopK (s9, count) v = GatherElements <axis = 1> (s9, k)", ROWS),
        ("n = Neg (s) v, k = TopK (n, count)", ROWS),
    ],
    ids=["boxes moved", "two boxes exchanged", "one row throughout", "lower scores", "worst"],
)
def test_rows_of_other_scores_are_a_fault(fault: tuple[str, ...], tmp_path: Path) -> None:
    assert (
        judged((FORWARD, SCORES, BEST, ROWS), (HALVES, SCORES, *fault), tmp_path).verdict == "not equivalent"
    )


def test_the_last_places_are_undecided_where_too_many_rows_may_stand_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_ties, "_MOST_PAGES", 2)
    # All scores are equal but for rounding.
    flat = """pa, pb = Split <axis = 1> (p, one) qa, qb = Split <axis = 1> (q, one)
        pt = Tile (pa, many) qt = Tile (qa, many) s = Concat <axis = 1> (pt, qt)"""
    report = judged((FORWARD, flat, BEST, ROWS), (HALVES, flat, BEST, ROWS), tmp_path)
    assert report.verdict == "inconclusive", report.reason
    assert "hang on decisions between numbers that differ by no more than rounding" in report.reason


@pytest.mark.parametrize(("labels", "verdict"), [("labels", "proven"), ("others", "not equivalent")])
def test_labels_change_places_as_their_scores_do(labels: str, verdict: str, tmp_path: Path) -> None:
    other = LABELS.replace("labels", labels)
    report = judged((FORWARD, SCORES, BEST, LABELS), (HALVES, SCORES, BEST, other), tmp_path)
    assert report.verdict == verdict, report.reason

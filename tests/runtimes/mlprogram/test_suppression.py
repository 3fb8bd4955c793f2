"""non_maximum_suppression against ONNX Runtime's, class by class."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

from tests.runtimes.mlprogram.programs import evaluated

Array = Any
MODEL = """
    <ir_version: 8, opset_import: ["": 11]>
    nms (float[1, n, 4] boxes, float[1, 1, n] scores, int64[1] limit, float[1] overlap, float[1] lowest)
        => (int64[m, 3] kept)
    {
        kept = NonMaxSuppression <center_point_box = 1> (boxes, scores, limit, overlap, lowest)
    }
"""


def suppressed(boxes: Array, scores: Array, limit: int, overlap: float, lowest: float) -> list[int]:
    """The indices that ONNX Runtime keeps of one class, best first; the boxes are center and size."""
    model = onnx.parser.parse_model(MODEL)
    feeds = {"boxes": boxes[None], "scores": scores[None, None], "limit": np.array([limit])}
    feeds |= {"overlap": np.float32([overlap]), "lowest": np.float32([lowest])}
    (kept,) = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    return [int(each) for each in kept[:, 2]]


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("opset", ["iOS15", "iOS17"])
def test_keeps_the_boxes_that_onnx_runtime_keeps(opset: str, per_class: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    cases, wanted = [], []
    for _ in range(10):
        count, classes, limit = 24, int(random.integers(1, 4)), int(random.choice([3, 30]))
        boxes = random.uniform(1, 9, (count, 4)).astype(np.float32)
        # No two are as good, whatever the class.
        scores = random.permutation(count * classes).reshape(count, classes).astype(np.float32)
        overlap, lowest = float(random.choice([0.2, 0.5])), float(random.choice([-1, count / 2 - 0.5]))
        lowest = lowest if opset == "iOS15" else -1.0
        best, kind = scores.max(axis=1), scores.argmax(axis=1)
        kept: list[int] = []
        for each in range(classes) if per_class else (None,):
            places = np.flatnonzero(kind == each) if each is not None else np.arange(count)
            if len(places):
                kept += [
                    int(places[i]) for i in suppressed(boxes[places], best[places], count, overlap, lowest)
                ]
        wanted.append((sorted(kept, key=lambda i: -best[i])[:limit], boxes, scores))
        given = {"boxes": boxes[None], "scores": scores[None], "iou_threshold": np.float32(overlap)}
        given |= {"max_boxes": limit, "per_class_suppression": per_class}
        if opset == "iOS15":
            given["score_threshold"] = np.float32(lowest)
        else:
            given |= {"boxes": boxes.T[None], "scores": scores.T[None]}
        cases.append(given)
    for (kept, boxes, scores), results in zip(
        wanted, evaluated(tmp_path, "non_maximum_suppression", cases, opset), strict=True
    ):
        chosen, best, indices, *count = results
        if opset == "iOS17":
            chosen, best = chosen.swapaxes(1, 2), best.swapaxes(1, 2)
        found = len(kept)
        assert indices[0, :found].tolist() == kept
        assert (indices[0, found:] == -1).all()
        np.testing.assert_array_equal(chosen[0, :found], boxes[kept])
        np.testing.assert_array_equal(best[0, :found], scores[kept])
        assert not chosen[0, found:].any()
        assert [int(each[0]) for each in count] == ([found] if opset == "iOS15" else [])


def test_stops_when_it_has_as_many_boxes_as_wanted(tmp_path: Path) -> None:
    """20,000 boxes apart from each other, of which it keeps ten: one pass over the rest for each kept box."""
    count, limit = 20_000, 10
    boxes = np.ones((count, 4), np.float32)
    boxes[:, 0] = 3 * np.arange(count)
    scores = np.random.default_rng(3).permutation(count).astype(np.float32)
    given = {"boxes": boxes.T[None], "scores": scores[None, None], "iou_threshold": np.float32(0.5)}
    given |= {"max_boxes": limit, "per_class_suppression": False}
    begun = time.process_time()
    ((*_, indices),) = evaluated(tmp_path, "non_maximum_suppression", [given], "iOS17")
    assert indices.ravel().tolist() == np.argsort(-scores)[:limit].tolist()
    assert time.process_time() - begun < 2

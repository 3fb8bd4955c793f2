"""Class labels are proven as what they are: the index of the largest score, looked up in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import onnxport
from onnxport.formats.model import Model
from onnxport.validate.translation.heads import Graph
from onnxport.validate.translation.matches import Matching, match_graphs
from onnxport.validate.translation.mlpackage.artefact import prove_mlpackage
from onnxport.validate.translation.proof import Proof
from onnxport.validate.translation.tflite.artefact import prove_tflite

SIZES = {"x": (3, 4)}
SOURCE = """
<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 1]>
g (float[n, 4] x) => (int64[m] label)
<int64[4] classes = {0, 10, 20, 30}, int64[1] flat = {-1}>
{
  best = ArgMax <axis = 1> (x)
  found = ai.onnx.ml.ArrayFeatureExtractor (classes, best)
  label = Reshape (found, flat)
}
"""
# The same in integers of 32 bits, with the float in between that scikit-learn's converter writes.
NARROW = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 4] x) => (int64[m] label)
<int32[4] classes = {0, 10, 20, 30}>
{
  best = ArgMax <axis = 1, keepdims = 0> (x)
  index = Cast <to = 6> (best)
  found = Gather (classes, index)
  real = Cast <to = 1> (found)
  label = Cast <to = 7> (real)
}
"""
# As Core ML's lowering writes ArgMax, whose choice among equals MIL does not say.
PLACES = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 4] x) => (int64[m] label)
<int32[4] classes = {0, 10, 20, 30}, int32[1,4] places = {0, 1, 2, 3}, int32 last = {3}, int64[1] axis = {1}>
{
  most = ReduceMax <keepdims = 1> (x, axis)
  is_most = Equal (x, most)
  chosen = Where (is_most, places, last)
  index = ReduceMin <keepdims = 0> (chosen, axis)
  found = Gather (classes, index)
  label = Cast <to = 7> (found)
}
"""


def matched(candidate: str, source: str = SOURCE) -> Matching:
    ours, theirs = (
        Graph(Model(ir.from_proto(onnx.parser.parse_model(text))), SIZES) for text in (candidate, source)
    )
    return match_graphs(ours, theirs)


@pytest.mark.parametrize("form", [SOURCE, NARROW, PLACES])
def test_a_label_is_the_same_in_other_integers(form: str) -> None:
    assert matched(form).mismatches == []


@pytest.mark.parametrize(
    ("form", "old", "new"),
    [
        (NARROW, "ArgMax", "ArgMin"),
        (NARROW, "axis = 1, ", "axis = 0, "),
        (NARROW, "{0, 10, 20, 30}", "{0, 20, 10, 30}"),
        (NARROW, "keepdims = 0> (x)", "keepdims = 0, select_last_index = 1> (x)"),
        (NARROW, "Cast <to = 1> (found)", "Cast <to = 9> (found)"),
        (PLACES, "ReduceMax", "ReduceMin"),
        (PLACES, "= {0, 1, 2, 3}", "= {0, 1, 3, 2}"),
        (PLACES, "int32 last = {3}", "int32 last = {2}"),
        (PLACES, "Equal (x, most)", "Equal (most, most)"),
    ],
)
def test_another_label_is_found(form: str, old: str, new: str) -> None:
    assert old in form
    assert matched(form.replace(old, new)).mismatches


def test_a_type_that_does_not_hold_a_label_is_no_detail() -> None:
    """2^24 + 1 is no number of float32."""
    large = NARROW.replace("30}", "16777217}"), SOURCE.replace("30}", "16777217}")
    assert matched(*large).mismatches
    assert matched(large[0].replace("Cast <to = 1>", "Cast <to = 11>"), large[1]).mismatches == []


def classifier(kind: str, path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Write a classifier of scikit-learn; return the rows that it was trained on."""
    from skl2onnx import to_onnx
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier

    rows, labels = load_iris(return_X_y=True)
    rows = rows.astype(np.float32)
    made = {
        "mlp": lambda: MLPClassifier((64,), max_iter=30, random_state=0),
        "logistic": LogisticRegression,
        "bayes": GaussianNB,
    }[kind]().fit(rows, labels)
    options = {id(made): {"zipmap": False}}
    path.write_bytes(to_onnx(made, rows[:1], options=options, target_opset=18).SerializeToString())
    return np.asarray(rows)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("kind", "target", "precision"),
    [
        ("mlp", "tflite", "int8"),
        ("mlp", "coreml", "int8"),
        ("logistic", "coreml", "fp16"),
        ("bayes", "coreml", "fp16"),
    ],
)
def test_a_classifier_of_scikit_learn_is_proven(
    kind: str, target: str, precision: str, tmp_path: Path
) -> None:
    model, file = (
        tmp_path / "model.onnx",
        tmp_path / f"made.{'tflite' if target == 'tflite' else 'mlpackage'}",
    )
    rows = classifier(kind, model)
    np.savez(tmp_path / "rows.npz", X=rows)
    options: dict[str, Any] = {"calib": tmp_path / "rows.npz"} if precision == "int8" else {}
    onnxport.convert_model(model, target, file, precision=precision, validate=False, **options)
    found = proof(model, file, rows[::50], "" if precision == "int8" else "float16")
    assert found.is_complete, str(found)


def proof(model: Path, file: Path, rows: np.ndarray[Any, np.dtype[Any]], rounding: str) -> Proof:
    prove = prove_tflite if file.suffix == ".tflite" else prove_mlpackage
    return prove(Model.load(model), file, [{"X": row[None]} for row in rows], rounding=rounding)

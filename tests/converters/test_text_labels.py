"""Classifiers with labels of text, as scikit-learn's users write them, in formats that have no texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import parser, save
from skl2onnx import to_onnx
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import onnxport
from onnxport.core.errors import CannotConvertError
from onnxport.formats.numbered_texts import to_texts
from onnxport.formats.tflite.ports import read_signature
from onnxport.inspection import inspect_model

FLOWERS = np.array(["setosa", "versic", "virgin"])  # of equal length, for the test that swaps two
ESTIMATORS = {
    "forest": RandomForestClassifier(5, random_state=0),
    "linear": LogisticRegression(max_iter=500),
    "machine": SVC(),
    "neighbours": KNeighborsClassifier(),
}


@pytest.fixture(scope="module")
def flowers() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x, y = load_iris(return_X_y=True)
    return x.astype(np.float32), FLOWERS[y]


@pytest.fixture(params=ESTIMATORS)
def trained(request: pytest.FixtureRequest, flowers: Any, tmp_path: Path) -> tuple[Any, Path]:
    x, y = flowers
    estimator = ESTIMATORS[request.param].fit(x, y)
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(estimator, x[:1]).SerializeToString())
    return estimator, path


OF_TWO = {
    "forest": RandomForestClassifier(10, random_state=0),
    "linear": LogisticRegression(max_iter=500),
    "boosting": GradientBoostingClassifier(n_estimators=10),
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "bayes": GaussianNB(),
}


@pytest.mark.parametrize("to", ["ort", "tflite"])
@pytest.mark.parametrize("name", OF_TWO)
def test_two_classes_are_proven(name: str, to: str, tmp_path: Path) -> None:
    """The probability of one is 1 minus that of the other, and may be 0 for all rows but for rounding."""
    x = np.random.default_rng(0).standard_normal((300, 6)).astype(np.float32)
    estimator = OF_TWO[name].fit(x, np.array(["no", "yes"])[(x[:, 0] + x[:, 1] > 0).astype(int)])
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(estimator, x[:1]).SerializeToString())
    made = onnxport.convert_model(path, to=to, output=path.with_suffix(f".{to}"), latency=False)
    assert made.report.verdict == "proven", made.report.reason


@pytest.mark.parametrize("forest", [RandomForestClassifier, ExtraTreesClassifier])
def test_a_tie_of_two_labels_is_no_difference(forest: Any, tmp_path: Path) -> None:
    """Of 20 votes 10 and 10: which label wins hangs on the last bit of a sum; another label is a fault."""
    x, y = load_wine(return_X_y=True)
    estimator = forest(20, random_state=3).fit(x.astype(np.float32), np.array(["rot", "weiss", "rosé"])[y])
    path, other = tmp_path / "model.onnx", tmp_path / "other.onnx"
    path.write_bytes(to_onnx(estimator, x[:1].astype(np.float32)).SerializeToString())
    made = onnxport.convert_model(path, to="tflite", output=tmp_path / "model.tflite", latency=False)
    assert made.report.verdict == "proven", made.report.reason
    # The same scores, with the names of two labels the other way round.
    content = path.read_bytes().replace(b"weiss", b"\0" * 5).replace("rosé".encode(), b"weiss")
    other.write_bytes(content.replace(b"\0" * 5, "rosé".encode()))
    assert onnxport.validate_model(other, tmp_path / "model.tflite").verdict == "not equivalent"


def test_a_file_names_the_texts_of_its_numbers(trained: tuple[Any, Path], flowers: Any) -> None:
    estimator, path = trained
    onnxport.convert_model(path, to="tflite", output=path.with_suffix(".tflite"))
    ports = read_signature(path.with_suffix(".tflite"))
    port, index = ports.outputs[0]
    interpreter = Interpreter(str(path.with_suffix(".tflite")))
    rows = flowers[0][::10]
    interpreter.resize_tensor_input(ports.inputs[0][1], rows.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(ports.inputs[0][1], rows)
    interpreter.invoke()
    numbers = interpreter.get_tensor(index)
    assert numbers.dtype.kind == "i"
    shown = inspect_model(path.with_suffix(".tflite"))
    assert shown.outputs[0].dtype == numbers.dtype.name
    assert f"the numbers of {port.name!r} are positions in 3 texts: setosa, versic, virgin" in shown.unusual
    assert np.array_equal(np.array(port.texts)[numbers], estimator.predict(rows))


def test_a_package_answers_with_texts(trained: tuple[Any, Path], flowers: Any) -> None:
    estimator, path = trained
    package, rows = path.with_suffix(".mlpackage"), flowers[0][::10]
    onnxport.convert_model(path, to="coreml", output=package)
    with onnxport.load(package) as runtime:
        answers = runtime.run({"X": rows})
    assert np.array_equal(answers[runtime.outputs[0].name], estimator.predict(rows))


def test_swapped_texts_are_found(flowers: Any, tmp_path: Path) -> None:
    x, y = flowers
    source, made = tmp_path / "model.onnx", tmp_path / "model.tflite"
    source.write_bytes(to_onnx(LogisticRegression(max_iter=500).fit(x, y), x[:1]).SerializeToString())
    onnxport.convert_model(source, to="tflite", output=made)
    right, wrong = b'"versic","virgin"', b'"virgin","versic"'
    content = made.read_bytes()
    assert right in content
    made.write_bytes(content.replace(right, wrong))
    assert not onnxport.validate_model(source, made).passed


@pytest.mark.parametrize("note", ["5", "not JSON", '["a", "b", "c"]'])
@pytest.mark.parametrize("target", ["tflite", "ort"])
def test_a_note_of_texts_in_a_source_means_nothing(note: str, target: str, tmp_path: Path) -> None:
    graph = "agraph (float[N, 3] x) => (int64[N] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {graph}')
    model.graph.output[0].metadata_props.add(key="onnxport.texts", value=note)
    save(model, tmp_path / "model.onnx")
    onnxport.optimize_model(tmp_path / "model.onnx", output=tmp_path / "optimized.onnx")
    made = onnxport.convert_model(tmp_path / "optimized.onnx", to=target, output=tmp_path / f"model.{target}")
    with onnxport.load(made.path) as runtime:
        assert [spec.dtype for spec in runtime.outputs] == ["int64"]


@pytest.mark.parametrize(
    ("found", "text"), [([1.0], ["b"]), ([0.5], ["<0.5>"]), ([np.nan], ["<nan>"]), ([-1], ["<-1>"])]
)
def test_a_number_without_a_text_is_shown(found: list[float], text: list[str]) -> None:
    assert to_texts(np.array(found), ("a", "b")).tolist() == text


def test_texts_that_are_computed_stay_refused(tmp_path: Path) -> None:
    graph = 'agraph (string[1] x) => (string[1] y) { y = StringNormalizer<case_change_action="LOWER">(x) }'
    save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'), tmp_path / "model.onnx")
    with pytest.raises(CannotConvertError, match="string"):
        onnxport.convert_model(tmp_path / "model.onnx", to="tflite", output=tmp_path / "model.tflite")

"""Classifiers as skl2onnx writes them by default: with a ZipMap at their end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxport
from onnxport.core.errors import CannotConvertError
from onnxport.formats.model import Model
from onnxport.formats.tflite.ports import manifest_text, schema
from onnxport.runtimes.ort.runtime import OrtRuntime

skl2onnx = pytest.importorskip("skl2onnx")


@pytest.fixture(params=["integers", "texts"])
def classifier(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    from sklearn.tree import DecisionTreeClassifier

    random = np.random.default_rng(0)
    x = random.standard_normal((200, 4)).astype(np.float32)
    numbers = (x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0.3)
    classes = numbers if request.param == "integers" else np.array(["ab", "c", "de", "f"])[numbers]
    made = skl2onnx.to_onnx(DecisionTreeClassifier(max_depth=4).fit(x, classes), x[:1], target_opset=17)
    assert made.graph.node[-1].op_type == "ZipMap"
    path = tmp_path / "classifier.onnx"
    onnx.save(made, path)
    return path


def test_the_probabilities_are_a_tensor_under_the_outputs_name(classifier: Path) -> None:
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(classifier, providers=["CPUExecutionProvider"])
    _, dictionaries = session.run(None, {"X": x})
    model = Model.load(classifier)
    (labels,) = model.labels.values()
    assert list(labels) == list(dictionaries[0])
    assert [output.name for output in model.outputs] == [output.name for output in session.get_outputs()]
    with OrtRuntime(classifier) as runtime:
        tensor = runtime.run({"X": x})["output_probability"]
    assert tensor.dtype == np.float32
    assert tensor.tolist() == [[row[label] for label in labels] for row in dictionaries]


def test_the_artefact_has_the_labels_and_a_note_says_so(classifier: Path) -> None:
    made = onnxport.convert_model(classifier, "ort")
    assert made.report.verdict == "proven"
    (note,) = [note for note in made.run.artifacts[0].notes if "ZipMap" in note]
    assert "'output_probability' is a tensor with a column for each of 4 labels" in note
    assert '"labels":{"output_probability":[' in made.path.read_bytes().decode(errors="replace")


@pytest.mark.parametrize("classifier", ["integers"], indirect=True)
def test_a_tflite_file_has_them_too(classifier: Path) -> None:
    made = onnxport.convert_model(classifier, "tflite")
    content = made.path.read_bytes()
    text = manifest_text(schema.Model.GetRootAs(content, 0), content)
    assert text is not None
    assert '"labels":{"output_probability":[0,1,2,3]}' in text


def test_a_network_that_ends_in_one_is_quantized(tmp_path: Path) -> None:
    from sklearn.neural_network import MLPClassifier

    random = np.random.default_rng(0)
    x = random.standard_normal((64, 4)).astype(np.float32)
    network = MLPClassifier((8,), max_iter=50, random_state=0).fit(
        x, np.array(["no", "yes"])[(x[:, 0] > 0) * 1]
    )
    onnx.save(skl2onnx.to_onnx(network, x[:1], target_opset=17), tmp_path / "network.onnx")
    np.savez(tmp_path / "samples.npz", X=x)
    made = onnxport.quantize_model(
        tmp_path / "network.onnx", precision="int8", calib=tmp_path / "samples.npz"
    )
    assert made.report.passed
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(made.path).graph.node}


@pytest.mark.parametrize("classifier", ["integers"], indirect=True)
def test_a_zipmap_that_others_read_is_refused(classifier: Path) -> None:
    model = onnx.load(classifier)
    model.graph.output[1].name = "count"
    model.graph.node.append(onnx.helper.make_node("SequenceLength", ["output_probability"], ["count"]))
    model.graph.value_info.append(
        onnx.helper.make_value_info("output_probability", model.graph.output[1].type)
    )
    number = onnx.helper.make_tensor_value_info("count", onnx.TensorProto.INT64, [])
    model.graph.output[1].CopyFrom(number)
    onnx.save(model, classifier)
    with pytest.raises(CannotConvertError, match="inner ZipMap"):
        Model.load(classifier)
